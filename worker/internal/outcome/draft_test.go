package outcome

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReadDraft(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*draftTitle)
	lines := strings.Repeat(strings.Repeat("y", 99)+"\n", 1000)
	for _, tt := range []struct {
		name, said, title, text string
	}{
		{"plain", "Fix it\n\nIt was broken.\n\n- a\n- b\n", "Fix it", "It was broken.\n\n- a\n- b"},
		{"marked", "Title: Fix  it\nBody", "Fix it", "Body"},
		{"fenced", "```markdown\n# Fix it\n\nBody\n```", "Fix it", "Body"},
		{"a title alone", "\n\n Fix it ", "Fix it", ""},
		{"nothing", " \n\t\n", "", ""},
		{"what is not text", "Fix\x00 \u202eit\r\n\r\nA\tB\xff\n", "Fix it", "A B"},
		{"claims", "Fix it\n\nA\nReviewed-By: x\nco-authored-by: y\n by: z\nPenstock-Session: s\nstandby: B", "Fix it", "A\nstandby: B"},
		{"a long title", long, long[:draftTitle-1] + "…", ""},
		{"a long text", "T\n" + lines, "T", strings.TrimSpace(lines[:draftText/100*100])},
	} {
		if got := ReadDraft(tt.said); got.Title != tt.title || got.text != tt.text {
			t.Errorf("%s: %q, %d bytes %.80q", tt.name, got.Title, len(got.text), got.text)
		}
	}
}
