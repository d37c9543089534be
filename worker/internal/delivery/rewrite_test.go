package delivery

import "testing"

func TestRewrite(t *testing.T) {
	t.Parallel()
	d := Delivery{Message: "Fix it", Author: "Bot <bot@example.org>", Trailers: []string{"Penstock-Job: j"}}
	head := "tree t\nparent p\nauthor A <a@b> 1 +0100\ncommitter A <a@b> 2 -0000\n"
	want := "tree t\nparent q\nauthor Bot <bot@example.org> 1 +0100\ncommitter Bot <bot@example.org> 2 -0000\n"
	for _, c := range []struct{ name, head, message, want string }{
		{"plain", head, "One\n", "One\n\nPenstock-Job: j\n"},
		{"a body", head, "One\n\nTwo\n\n\n", "One\n\nTwo\n\nPenstock-Job: j\n"},
		{"trailers", head, "One\n\nSigned-off-by: A\n", "One\n\nSigned-off-by: A\nPenstock-Job: j\n"},
		{"a subject like one", head, "fix: it\n", "fix: it\n\nPenstock-Job: j\n"},
		{"forged", head, "One\n\npenstock-job : k\nPENSTOCK-JOB: k\n", "One\n\nPenstock-Job: j\n"},
		{"empty", head, "", "Fix it\n\nPenstock-Job: j\n"},
		{"nothing else", head, "Penstock-Job: k\n", "Fix it\n\nPenstock-Job: j\n"},
		{"signed", head + "gpgsig -----BEGIN\n line\n \n -----END\nencoding ISO-8859-1\n", "One\n", "One\n\nPenstock-Job: j\n"},
	} {
		wantHead := want
		if c.name == "signed" {
			wantHead += "encoding ISO-8859-1\n"
		}
		if got := string(rewrite([]byte(c.head+"\n"+c.message), d, map[string]string{"p": "q"})); got != wantHead+"\n"+c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, wantHead+"\n"+c.want)
		}
	}
}
