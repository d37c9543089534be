package token_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs/token"
)

func TestForm(t *testing.T) {
	form := regexp.MustCompile(`^pst_[a-z2-7]{58}$`)
	seen := map[string]bool{}
	for range 100 {
		secret := token.New()
		text := secret.Reveal()
		if !form.MatchString(text) || seen[text] {
			t.Fatalf("%s is not of the form, or was made before", text)
		}
		seen[text] = true
		if back, err := token.Parse(text); err != nil || back != secret {
			t.Fatalf("%s is read as %v, %v", text, back, err)
		}
		for _, shown := range []string{fmt.Sprint(secret), fmt.Sprintf("%+v %#v %q", secret, secret, secret), fmt.Sprint([]token.Secret{secret})} {
			if strings.Contains(shown, text[4:]) {
				t.Errorf("the secret is shown: %s", shown)
			}
		}
	}
}

// Each typo, and each token that is cut off, is seen without asking a pool.
func TestTypos(t *testing.T) {
	text := token.New().Reveal()
	for i := range text {
		for _, other := range "a2z7" {
			typo := text[:i] + string(other) + text[i+1:]
			if _, err := token.Parse(typo); err == nil && typo != text {
				t.Errorf("%s was taken for %s", typo, text)
			}
		}
		if _, err := token.Parse(text[:i]); err == nil {
			t.Errorf("%s was taken", text[:i])
		}
	}
	for _, wrong := range []string{"", "pst_", text + "a", " " + text, text + "\n", strings.ToUpper(text), "Bearer " + text} {
		if _, err := token.Parse(wrong); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
}

// Nothing that is presented makes Parse fail in another way, and what it takes has one
// text.
func FuzzParse(f *testing.F) {
	f.Add(token.New().Reveal())
	f.Add("pst_" + strings.Repeat("a", 58))
	f.Add("pst_" + strings.Repeat("=", 58))
	f.Add("pst_" + strings.Repeat("\n", 58))
	f.Fuzz(func(t *testing.T, text string) {
		secret, err := token.Parse(text)
		if err == nil && secret.Reveal() != text {
			t.Errorf("%q is read as %q", text, secret.Reveal())
		}
	})
}
