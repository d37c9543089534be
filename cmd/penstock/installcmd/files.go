package installcmd

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/deploy/systemd"
)

// packaged is where packages have the program, and so the units.
const packaged = "/usr/bin/penstock"

// A file is one that a service needs.
type file struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	// settings belong to the administrator from the beginning.
	settings bool
}

var fileView = cli.View[file]{
	Header: []string{"PATH"},
	Row:    func(f file) []string { return []string{f.Path} },
	ID:     func(f file) string { return f.Path },
}

// render returns the files of a service that runs a program.
func render(worker bool, program string) ([]file, error) {
	unit, part := "penstock", "server"
	if worker {
		unit, part = "penstock-worker", "worker"
	}
	var files []file
	for _, f := range []struct{ from, to string }{
		{unit + ".service", "/etc/systemd/system/" + unit + ".service"},
		{part + ".sysusers.conf", "/etc/sysusers.d/" + unit + ".conf"},
		{part + ".tmpfiles.conf", "/etc/tmpfiles.d/" + unit + ".conf"},
		{part + ".yaml", "/etc/penstock/" + part + ".yaml"},
	} {
		text, err := systemd.Files.ReadFile(f.from)
		if err != nil {
			return nil, err
		}
		made := file{Path: f.to, Content: strings.ReplaceAll(string(text), packaged, program), settings: strings.HasSuffix(f.from, ".yaml")}
		if !made.settings {
			made.Content = seal(made.Content)
		}
		files = append(files, made)
	}
	return files, nil
}

// mark begins a file of this command. The sum that follows is that of the rest of the file,
// by which a later call knows whether anything was changed.
const mark = "# penstock install "

func seal(text string) string {
	return fmt.Sprintf("%s%x\n%s", mark, sha256.Sum256([]byte(text)), text)
}

// untouched reports whether a file is as this command has written it, in any version.
func untouched(text string) bool {
	_, rest, ok := strings.Cut(text, "\n")
	return ok && seal(rest) == text
}

// What happens to a file.
const (
	created   = "created"
	updated   = "updated"
	unchanged = "unchanged"
	kept      = "kept" // settings
	replaced  = "replaced"
)

// A planned is a file and what happens to it.
type planned struct {
	Path    string `json:"path"`
	Change  string `json:"change"`
	content string
}

var planView = cli.View[planned]{
	Header: []string{"PATH", "CHANGE"},
	Row:    func(p planned) []string { return []string{p.Path, p.Change} },
	ID:     func(p planned) string { return p.Path },
}

// compare decides what happens to each file. If one was changed by hand, none is written,
// except by force.
func compare(root string, files []file, force bool) ([]planned, error) {
	var plan []planned
	var changed []string
	for _, f := range files {
		p := planned{Path: f.Path, content: f.Content}
		old, err := input.ReadFile(filepath.Join(root, f.Path), input.MaxFile)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			p.Change = created
		case errors.Is(err, os.ErrPermission):
			return nil, cli.Fail(cli.ExitDenied, "run it as root: sudo penstock install …", "read %s: %w", f.Path, err)
		case err != nil:
			return nil, fmt.Errorf("compare %s: %w", f.Path, err)
		case string(old) == f.Content:
			p.Change = unchanged
		case f.settings:
			p.Change = kept
		case untouched(string(old)):
			p.Change = updated
		case force:
			p.Change = replaced
		default:
			changed = append(changed, f.Path)
		}
		plan = append(plan, p)
	}
	if len(changed) > 0 {
		return nil, cli.Fail(cli.ExitUnexpected, `compare it with "penstock install --systemd --print", move your changes to "systemctl edit UNIT", and replace it with --force`,
			"nothing was written: %s was changed by hand, or is not from penstock install", strings.Join(changed, ", "))
	}
	return plan, nil
}

var plain = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(/[A-Za-z0-9._+-]+)+$`) })

// plainPath reports whether a unit can name a path without quoting it.
func plainPath(path string) bool { return plain().MatchString(path) && filepath.Clean(path) == path }

// hidden reports whether the units hide a path from the service.
func hidden(path string) bool {
	return slices.ContainsFunc([]string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"}, func(dir string) bool { return strings.HasPrefix(path, dir) })
}
