package backends

import "testing"

func TestOlder(t *testing.T) {
	for version, want := range map[string]bool{"0.7.0": true, "0.8.0": false, "0.11.1": false, "1.0": false, "": true, "x": true, "0.8": false} {
		if got := older(version, 0, 8); got != want {
			t.Errorf("%q: got %v", version, got)
		}
	}
}
