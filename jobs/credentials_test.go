package jobs

import (
	"errors"
	"strings"
	"testing"
)

// An address with a password or a token in it is refused, and what refuses it, and
// what shows old ones, does not say it. Others are left as they are.
func TestAddressesWithCredentials(t *testing.T) {
	for _, secret := range []string{
		"https://u:hunter2@host/x.git", "http://u:hunter2@host:8080/x", "ssh://git:hunter2@host/x", "git://u:hunter2@host/x", "file://u:hunter2@/x",
		"https://:hunter2@host/x", "https://u:hun/ter2hunter2@host/x", "https://u:a@hunter2@host/x", "https://u%3Ahunter2@host/x",
		"https://ghp_hunter2hunter2@host/x", "https://glpat-hunter2@host/x", "https://hunter2hunter2hunter2hunter2@host/x",
		"https://host/x?access_token=hunter2", "https://host/x?a=b&private_key=hunter2", "u:hunter2@host:x", "u:hunter2@host/x",
	} {
		job := Job{Prompt: "p", Repo: Repo{URL: secret}, Agent: Agent{Name: "a"}}.WithDefaults()
		err := job.Validate()
		invalid, _ := errors.AsType[*InvalidError](err)
		if invalid == nil || invalid.Fields[0].Field != "repo.url" || !strings.Contains(err.Error(), "credential helper") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: refused with %v", secret, err)
		}
		shown := WithoutCredentials(secret)
		if strings.Contains(shown, "hunter2") || !strings.Contains(shown, "host/x") && !strings.Contains(shown, "host:") && !strings.HasSuffix(shown, "/x") {
			t.Errorf("%s is shown as %s", secret, shown)
		}
		if strings.Contains(secret, "://") && !strings.Contains(secret, "%3A") {
			for _, text := range []string{`fatal: '` + secret + `' not found`, `{"url":"` + strings.ReplaceAll(secret, "/", `\/`) + `"}`} {
				if got := CensorAddresses(text); strings.Contains(got, "hunter2") || !strings.Contains(got, "host") && !strings.Contains(got, "x") {
					t.Errorf("%s becomes %s", text, got)
				}
			}
		}
		if !HasCredentials(shown) && !strings.Contains(secret, "?") {
			t.Errorf("%s, as %s is shown, would be accepted again", shown, secret)
		}
	}
	for _, plain := range []string{
		"https://host/x.git", "https://user@host/x", "ssh://git@host:2222/x", "git@github.com:o/x.git", "host.example:x", "/srv/u:p@x", "https://host:8443/@scope/x",
		"https://host/x@v1", "git://[::1]:9418/x", "file:///srv/x", "https://host/x?depth=1",
	} {
		if HasCredentials(plain) || WithoutCredentials(plain) != plain || CensorAddresses("see "+plain) != "see "+plain && !strings.Contains(plain, ":8443") {
			t.Errorf("%s is taken for one with credentials: %s", plain, WithoutCredentials(plain))
		}
	}
}
