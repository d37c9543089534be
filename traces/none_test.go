//go:build nootel

package traces

import (
	"errors"
	"testing"
)

// Without the export, what asks for it is told so.
func TestNotBuilt(t *testing.T) {
	if _, err := Open(t.Context(), Config{}); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("got %v", err)
	}
}
