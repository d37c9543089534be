package git

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// advertised lists what git-upload-pack offers of a local repository, as List does. It
// is one process, where git ls-remote starts that one by a shell.
func (r Remote) advertised(ctx context.Context, dir string, names []string) (refs []Ref, branch string, err error) {
	var out bytes.Buffer
	c := call{args: []string{"upload-pack", "--strict", "--advertise-refs", r.URL}, env: r.localEnv(), settings: settings, out: &out, dir: dir}
	if err := (Repo{}).exec(ctx, c); err != nil {
		return nil, "", err
	}
	all, capabilities, err := readAdvertisement(out.Bytes())
	if err != nil {
		return nil, "", &Error{Command: "upload-pack", Message: err.Error()}
	}
	for _, ref := range all {
		if ref.Name == "HEAD" || slices.Contains(names, ref.Name) {
			refs = append(refs, ref)
		}
	}
	for c := range strings.FieldsSeq(capabilities) {
		if head, ok := strings.CutPrefix(c, "symref=HEAD:"); ok {
			branch = strings.TrimPrefix(head, "refs/heads/")
		}
	}
	return refs, branch, nil
}

// readAdvertisement reads the first message of git's protocol, version 0: lines that
// begin with their length as four hexadecimal digits, up to one with the length 0.
func readAdvertisement(b []byte) (refs []Ref, capabilities string, err error) {
	for first := true; ; first = false {
		if len(b) < 4 {
			return nil, "", fmt.Errorf("the list of refs ends after %d of them", len(refs))
		}
		size, err := strconv.ParseUint(string(b[:4]), 16, 16)
		switch {
		case err == nil && size == 0:
			return refs, capabilities, nil
		case err != nil || size < 4 || int(size) > len(b):
			return nil, "", fmt.Errorf("the list of refs has a line of the length %q", b[:4])
		}
		line := string(b[4:size])
		b = b[size:]
		if first {
			line, capabilities, _ = strings.Cut(line, "\x00")
		}
		value, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if ok && IsCommit(value) && name != "capabilities^{}" {
			refs = append(refs, Ref{name, value})
		}
	}
}
