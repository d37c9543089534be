package workspace

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

// The programs that the documentation shows, with a real Mercurial.
func TestHookMercurial(t *testing.T) {
	exectest.Need(t, "hg")
	h := newHook(t, `set -e
to="$DIR/many/$PENSTOCK_WORKSPACE_ID"
hg clone --quiet --pull --updaterev="${PENSTOCK_REF:-default}" "$DIR/app" "$to" >&2
echo "$to"`)
	h.program("remove", `rm -rf "$DIR/many/$PENSTOCK_WORKSPACE_ID"`)
	sh(t, h.dir, `hg init app; cd app; echo one > a; echo two > b; hg commit -q -A -u me -m first; echo later >> a; hg commit -q -u me -m second`)
	r := hookRequest("job.1")
	r.Repo.Ref = "0" // not the last revision
	w, err := h.s.Prepare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(h.dir, "ran")
	// What an agent does, and what it plants for a user who runs hg there.
	sh(t, w.Dir(), `echo mine >> a; hg commit -q -u agent -m third; rm b; echo new > "with space"
printf '[hooks]\nupdate = touch %s\npre-status = touch %s\n' '`+ran+`' '`+ran+`' >> .hg/hgrc`)
	w.contents.touched()
	c := save(t, w)
	if c.Files != 3 || strings.Contains(patch(t, c), ".hg") {
		t.Errorf("got %+v\n%s", c, patch(t, c))
	}
	sh(t, filepath.Join(h.dir, "app"), "hg update -q --clean 0; patch -s -p1 < '"+c.Patch+"'; grep mine a; test ! -e b; grep new 'with space'")
	closeSpace(t, w)
	if disk.Exists(ran) || disk.Exists(w.Dir()) {
		t.Errorf("something ran on the host (%v), or is left (%v)", disk.Exists(ran), disk.Exists(w.Dir()))
	}
}
