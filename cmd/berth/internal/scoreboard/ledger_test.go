package scoreboard

import "testing"

func TestLedgerFindsWhatDiffers(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	for _, content := range []string{"one", "two", "three"} {
		l.Acknowledged(4, []byte(content))
	}
	for _, tc := range []struct {
		name    string
		session int
		loaded  []string
		want    Verdict
	}{
		{"all there", 4, []string{"one", "two", "three"}, Verdict{}},
		{"the last is missing", 4, []string{"one", "two"}, Verdict{Lost: 1}},
		{"nothing there", 4, nil, Verdict{Lost: 3}},
		{"a changed byte", 4, []string{"one", "tvo", "three"}, Verdict{Lost: 1}},
		{"another order", 4, []string{"two", "one", "three"}, Verdict{Lost: 2}},
		{"a turn doubled", 4, []string{"one", "two", "three", "three"}, Verdict{Surplus: 1}},
		{"never acknowledged", 5, []string{"one"}, Verdict{Surplus: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var loaded [][]byte
			for _, content := range tc.loaded {
				loaded = append(loaded, []byte(content))
			}
			if got := l.Check(tc.session, loaded); got != tc.want {
				t.Errorf("verdict %+v, want %+v", got, tc.want)
			}
		})
	}
}
