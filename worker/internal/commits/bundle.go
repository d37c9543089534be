package commits

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// readBundle reads the head of a bundle and returns its commit and the pack behind. It
// accepts one ref, and no capability that changes how the pack must be read.
func readBundle(from io.Reader, ref string, idLen int) (tip string, pack io.Reader, err error) {
	r := bufio.NewReader(from)
	for n := 0; ; n++ {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return "", nil, fmt.Errorf("read bundle: %w", err)
		}
		text := strings.TrimSuffix(string(line), "\n")
		id, name, _ := strings.Cut(text, " ")
		switch {
		case n == 0 && (text == "# v2 git bundle" || text == "# v3 git bundle"):
		case text == "" && tip != "":
			return tip, r, nil
		case text == "@object-format=sha1" && idLen == 40, text == "@object-format=sha256" && idLen == 64:
		case n > 0 && strings.HasPrefix(text, "-"):
		case n > 0 && n < 1000 && tip == "" && name == ref && git.IsCommit(id) && len(id) == idLen:
			tip = id
		default:
			return "", nil, fmt.Errorf("line %d of the bundle is not expected there", n+1)
		}
	}
}

// A Bundle is commits of an untrusted author.
type Bundle struct {
	Ref   string // the last commit
	Base  string // the commit that it builds on
	Limit int64  // bytes of the pack
	// closed says that everything which the repository's objects refer to is there. To
	// check everything that a tip reaches costs as much as the base has directories;
	// git index-pack has checked what the pack names.
	closed bool
}

// Take takes over the commits of a bundle, which it reads from its reader.
func (b Bundle) Take(ctx context.Context, repo git.Repo, from io.Reader) (*Branch, error) {
	tip, pack, err := readBundle(from, b.Ref, len(b.Base))
	if err != nil {
		return nil, err
	}
	return b.admit(ctx, repo, tip, pack)
}

// admit checks a pack and takes it over: each object is well formed, names in it are
// harmless, no object is missing, and the commits build on the base.
func (b Bundle) admit(ctx context.Context, repo git.Repo, tip string, pack io.Reader) (*Branch, error) {
	limit := "--max-input-size=" + strconv.FormatInt(b.Limit, 10)
	if err := repo.Pipe(ctx, pack, nil, "index-pack", "--stdin", "--fix-thin", "--strict", limit); err != nil {
		return nil, err
	}
	found := &reached{Branch: Branch{Tip: tip}, base: b.Base}
	list := []string{"rev-list", "--boundary", "--format=tree %T", tip, "--not", b.Base}
	if !b.closed {
		list = append(list, "--objects")
	}
	if err := repo.Pipe(ctx, nil, found, list...); err != nil {
		return nil, fmt.Errorf("objects are missing: %w", err)
	}
	if !found.onBase {
		return nil, errors.New("they do not build on the base commit")
	}
	return &found.Branch, nil
}

// reached reads the list of git rev-list of what a tip reaches and a base does not: two
// lines for a commit, and one for each other object. A commit after a dash is the first
// on its path that the base reaches as well, so a tip that builds on the base lists the
// base itself.
type reached struct {
	Branch
	base   string
	onBase bool
	last   string // the commit that the next lines are about
	rest   []byte // of a line
}

func (r *reached) Write(b []byte) (int, error) {
	r.rest = append(r.rest, b...)
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		r.line(string(line))
		r.rest = rest
	}
}

func (r *reached) line(line string) {
	kind, value, _ := strings.Cut(line, " ")
	switch {
	case kind == "commit" && strings.HasPrefix(value, "-"):
		r.last = value
		r.onBase = r.onBase || value[1:] == r.base
	case kind == "commit":
		r.last = value
		r.Count++
	case kind == "tree" && r.last == r.Tip:
		r.Tree = value
	}
}
