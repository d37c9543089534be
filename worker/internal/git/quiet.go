package git

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
)

// Quiet is a repository of a user's with all hooks turned off. Every [Repo] turns off
// those in a directory; newer gits also run hooks that the configuration defines by
// name, and these can be turned off by name only.
func (r Repo) Quiet(ctx context.Context) (Repo, error) {
	var out bytes.Buffer
	err := r.Pipe(ctx, nil, &out, "config", "-z", "--name-only", "--get-regexp", `^hook\.`)
	if err != nil {
		if none(err) {
			err = nil
		}
		return r, err
	}
	var names []string
	for key := range strings.SplitSeq(out.String(), "\x00") {
		key = strings.TrimPrefix(key, "hook.")
		if dot := strings.LastIndexByte(key, '.'); dot >= 0 && !slices.Contains(names, key[:dot]) {
			names = append(names, key[:dot])
		}
	}
	r.Env = append(slices.Clone(r.Env), "GIT_CONFIG_COUNT="+strconv.Itoa(len(names)))
	for i, name := range names {
		n := strconv.Itoa(i)
		r.Env = append(r.Env, "GIT_CONFIG_KEY_"+n+"=hook."+name+".enabled", "GIT_CONFIG_VALUE_"+n+"=false")
	}
	return r, nil
}
