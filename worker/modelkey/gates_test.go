package modelkey_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/modelkey"
)

// The secret of a key is known before any call can be made with it, and still when the key is gone.
func TestSecretsAreKnownFirst(t *testing.T) {
	t.Parallel()
	g, err := gate.New(gate.Config{Govern: true})
	if err != nil {
		t.Fatal(err)
	}
	gates := modelkey.NewGates(map[string]*gate.Gate{"anthropic": g})
	redactor, _ := gates.Secrets().Redactor(nil)
	secret := func(n int) string { return fmt.Sprintf("sk-%04d-0123456789", n) }
	found := make(chan struct{})
	const keys = 200
	go func() {
		defer close(found)
		for n := range keys {
			for !slices.Contains(g.KeyNames(""), fmt.Sprint("key-", n)) {
				runtime.Gosched()
			}
			if got := string(redactor.Text([]byte(secret(n)))); got != fmt.Sprintf("[redacted PENSTOCK_MODEL_KEY_KEY_%d]", n) {
				t.Errorf("key %d is in use, and became %q", n, got)
			}
			found <- struct{}{}
		}
	}()
	for n := range keys {
		use, err := gates.Prepare("anthropic", []gate.Credential{{Name: fmt.Sprint("key-", n), Key: gate.Key(secret(n))}})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(redactor.Text([]byte(secret(n)))); got != secret(n) {
			t.Errorf("key %d is not in use yet, and became %q", n, got)
		}
		use()
		<-found
	}
	if got := string(redactor.Text([]byte(secret(0)))); got != "[redacted PENSTOCK_MODEL_KEY_KEY_0]" {
		t.Errorf("the first key became %q", got)
	}
	if _, err := gates.Prepare("anthropic", []gate.Credential{{Key: "two words"}}); err == nil {
		t.Error("a wrong key is taken")
	}
	use, err := gates.Prepare("anthropic", []gate.Credential{{Key: "sk-of-the-environment"}})
	if err != nil {
		t.Fatal(err)
	}
	if change := use(); change != (modelkey.Change{Added: 1, Removed: 1}) {
		t.Errorf("got %+v", change)
	}
	if got := string(redactor.Text([]byte("sk-of-the-environment"))); got != "[redacted ANTHROPIC_API_KEY]" {
		t.Errorf("the key of the environment became %q", got)
	}
}
