package progress_test

import (
	"bytes"
	"strings"
	"testing"

	"berth/cmd/berth/internal/progress"
)

func TestALogGetsALineEveryTenthOfTheWay(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := progress.New(&out, "binding", 1000)
	for range 1000 {
		b.Add(1)
	}
	b.Println("done")
	b.Done()
	if n := strings.Count(out.String(), "binding: "); n != 10 {
		t.Fatalf("%d lines:\n%s", n, out.String())
	}
	if !strings.Contains(out.String(), "binding: 1000 of 1000\ndone\n") {
		t.Fatalf("the end is missing:\n%s", out.String())
	}
}
