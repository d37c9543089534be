package poolmark

import (
	"context"
	"errors"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
)

func TestLabel(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, mark, label string
		own, other        bool
	}{
		{"job.1", "pool-a", "job.1.pool-a", true, false},
		{"try", "pool-b", "try.pool-b", false, true},
		{"job.1", "", "job.1", false, false},
		{"job.pool-a", "", "job.pool-a", true, false},
	} {
		label := Label(test.name, test.mark)
		if label != test.label || On(label, "pool-a") != test.own || On(label, "pool-b") != test.other || On(label, "") {
			t.Errorf("%s in %q is %q, of pool-a %v, of pool-b %v", test.name, test.mark, label, On(label, "pool-a"), On(label, "pool-b"))
		}
	}
}

var errRefused = errors.New("refused")

// reader is a backend that starts nothing, and keeps the label it was given.
type reader struct{ label string }

func (*reader) Name() string                                     { return "reader" }
func (*reader) Check(context.Context) ([]sandbox.Feature, error) { return nil, nil }
func (*reader) Command(sandbox.Spec) (*sandbox.Command, error)   { return nil, errRefused }

func (r *reader) Ready(_ context.Context, s sandbox.Spec) (sandbox.Spec, error) {
	r.label = s.Label
	return s, errRefused
}

func TestAJailHasTheMark(t *testing.T) {
	t.Parallel()
	b := &reader{}
	spec := sandbox.Spec{Args: []string{"true"}, Preset: sandbox.PresetOffline, Label: "job.1"}
	if _, err := (Jail{b, "pool-a"}).Run(t.Context(), spec, sandbox.Streams{}); !errors.Is(err, errRefused) || b.label != "job.1.pool-a" {
		t.Errorf("a jail called %q was asked for, err %v", b.label, err)
	}
}
