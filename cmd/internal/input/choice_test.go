package input

import "testing"

func TestLike(t *testing.T) {
	words := []string{"pending", "executing", "pause", "resume", "ls", "claude", "codex", "command"}
	for word, want := range map[string]string{
		"puase": "pause", "resum": "resume", "cluade": "claude", "Claude": "claude", "pend": "pending", "execting": "executing",
		"sl": "ls", "xyz": "", "": "", "co": "", "claude-nightly-build": "", "codx": "codex", "p": "",
	} {
		if got := Like(word, words); got != want {
			t.Errorf("Like(%q) is %q, want %q", word, got, want)
		}
	}
	if got := Like("ab", []string{"aa", "bb"}); got != "" {
		t.Errorf("of two that are as near it chose %q", got)
	}
}

func TestChoice(t *testing.T) {
	value := "b"
	c := OneOf(&value, "a", "b")
	if err := c.Set("c"); err == nil || err.Error() != `"c" is not allowed; use a or b` || value != "b" {
		t.Errorf("c: %v, value %q", err, value)
	}
	if err := c.Set("a"); err != nil || value != "a" || c.String() != "a" {
		t.Errorf("a: %v, value %q", err, value)
	}
	if err := c.Set(""); err != nil || value != "" {
		t.Errorf("nothing: %v, value %q", err, value)
	}
}
