package redisstore

import (
	"testing"

	"berth/integration/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
