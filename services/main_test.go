package services_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain holds every server that the tests started to leaving nothing behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
