package backends_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/backends"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func TestFirstIsAJailOfTheList(t *testing.T) {
	for _, name := range []string{"none", "oci", "seatbelt"} {
		if b, err := backends.First(t.Context(), name); err == nil || !strings.Contains(err.Error(), "by name") {
			t.Errorf("got %v, %v: a job has to ask for %s", b, err, name)
		}
		if b := backends.Untried(name); b != nil {
			t.Errorf("%s is chosen without having asked for it", b.Name())
		}
		if b, err := backends.New(t.Context(), name); err != nil || b.Name() != name {
			t.Errorf("asked for by its name: %v, %v", b, err)
		}
	}
	if b, err := backends.First(t.Context(), "chroot"); err == nil {
		t.Errorf("got %s for a name that nobody has", b.Name())
	}
	want, none := backends.New(t.Context(), backends.Auto)
	if got, err := backends.First(t.Context(), "none", "bwrap"); none == nil && (err != nil || got.Name() != want.Name()) {
		t.Errorf("got %v, err %v, want %s", got, err, want.Name())
	}
}

func ExampleNew() {
	_, err := backends.New(context.Background(), "chroot")
	fmt.Println(err)
	// Output: unknown backend "chroot"; known are auto and bwrap, systemd, oci, none
}
