package backends_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	sandboxtest.Main()
	goleak.VerifyTestMain(m)
}

func TestEveryNameHasItsBackend(t *testing.T) {
	for _, name := range backends.Names() {
		b, err := backends.New(t.Context(), name)
		if err != nil || b.Name() != name {
			t.Errorf("New(%q): got %v, err %v", name, b, err)
		}
	}
}

func TestAutoIsAJail(t *testing.T) {
	b, err := backends.New(t.Context(), backends.Auto)
	if err == nil && b.Name() == "none" {
		t.Error("auto chose no jail at all")
	}
}

func ExampleNew() {
	_, err := backends.New(context.Background(), "chroot")
	fmt.Println(err)
	// Output: unknown backend "chroot"; known are auto and bwrap, none
}
