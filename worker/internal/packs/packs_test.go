package packs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// What cannot be linked is not shared, and leaves nothing.
func TestShareWithoutLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exectest.Script(t, dir, "git init -q -b main; echo x > f; git add f; git commit -qm one; git repack -adq")
	repo := git.Repo{Dir: filepath.Join(dir, ".git")}
	files, err := packsOf(repo.Dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("got %q, %v", files, err)
	}
	into := filepath.Join(t.TempDir(), "objects/pack")
	if err := os.MkdirAll(filepath.Join(into, filepath.Base(files[1])), 0o755); err != nil { // in the place of the second file
		t.Fatal(err)
	}
	have, err := Share(t.Context(), filepath.Join(into, "../.."), repo, nil, exectest.Script(t, dir, "git rev-parse HEAD"))
	left, _ := filepath.Glob(filepath.Join(into, "*.idx"))
	if err != nil || have != "" || len(left) != 0 {
		t.Errorf("got %q, %v, and %q is left", have, err, left)
	}
}

// Only a history that is whole, and that of an ancestor, is shared.
func TestShare(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		dir := t.TempDir()
		exectest.Script(t, dir, "git init -q -b main --object-format="+format+` mirror; cd mirror
for i in 1 2 3; do echo $i > f; git add f; git commit -qm $i; done; git checkout -q -b aside HEAD^; echo x > f; git commit -qam aside; git checkout -q main; git repack -adq
cd ..; for n in 2 3; do git init -q --bare --object-format=`+format+` at$n; done
git -C at2 fetch -q --keep ../mirror $(git -C mirror rev-parse main~1); git -C at3 fetch -q --keep ../mirror main
cp -r at2 cut; git -C cut rev-parse FETCH_HEAD > cut/shallow
cp -r at2 damaged; chmod u+w damaged/objects/pack/*; for p in damaged/objects/pack/*.pack; do truncate -s 60 $p; done
git init -q --bare --object-format=`+format+` alone; git -C alone fetch -q --keep ../mirror main`)
		commits := strings.Fields(exectest.Script(t, filepath.Join(dir, "mirror"), "git rev-parse main~2 main~1 main aside"))
		one, two, three, aside := commits[0], commits[1], commits[2], commits[3]
		holder := func(name, commit string) Holder { return Holder{filepath.Join(dir, name), commit} }
		for _, c := range []struct {
			mirror, commit string
			holders        []Holder
			want           string
		}{
			{"mirror/.git", three, []Holder{holder("at2", two)}, two},
			{"mirror/.git", aside, []Holder{holder("at3", three), holder("at2", two)}, two},
			{"mirror/.git", one, []Holder{holder("at3", three), holder("at2", two)}, ""},
			{"mirror/.git", three, []Holder{holder("cut", two), holder("damaged", two), holder("none", two)}, ""},
			{"mirror/.git", three, nil, ""}, // it has another branch
			{"alone", three, nil, three},
			{"alone", two, nil, ""}, // of which it has more
			{"damaged", two, nil, ""},
			{"cut", two, nil, ""},
		} {
			into := filepath.Join(t.TempDir(), "into")
			if err := os.MkdirAll(filepath.Join(into, "objects/pack"), 0o755); err != nil {
				t.Fatal(err)
			}
			have, err := Share(t.Context(), into, git.Repo{Dir: filepath.Join(dir, c.mirror)}, c.holders, c.commit)
			files, _ := filepath.Glob(filepath.Join(into, "objects/pack/*"))
			if err != nil || have != c.want || len(files) != 2*min(1, len(c.want)) {
				t.Errorf("%s: %.9s from %s: got %q with %d files, err %v, want %q", format, c.commit, c.mirror, have, len(files), err, c.want)
			}
		}
	}
}
