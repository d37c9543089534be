package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// A module is a part of a program, with its licence.
type module struct {
	path, version string
	sum           string   // of its files, as go.sum has it
	ids           []string // of SPDX; what licensecheck recognises
	texts         []text
}

// A text is a file that a licence wants to be passed on.
type text struct {
	name string
	data []byte
}

// modulesOf returns the modules in a program, sorted by path, the standard library first.
func modulesOf(info *buildinfo.BuildInfo) ([]module, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	std := module{path: "std", version: strings.TrimPrefix(info.GoVersion, "go")}
	if err := std.read(strings.TrimSpace(string(root))); err != nil {
		return nil, err
	}
	list := []module{std}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			return nil, fmt.Errorf("%s is replaced: a release has what go.sum says", dep.Path)
		}
		m := module{path: dep.Path, version: dep.Version, sum: dep.Sum}
		dir, err := download(dep.Path + "@" + dep.Version)
		if err == nil {
			err = m.read(dir)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// download returns the directory with the files of a module.
func download(module string) (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	var got struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &got); jsonErr != nil || got.Error != "" {
		return "", fmt.Errorf("go mod download %s: %w: %s", module, errors.Join(err, jsonErr), got.Error)
	}
	return got.Dir, nil
}

// read finds the texts of a module's licence. One without a text may not be passed on.
func (m *module) read(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		ours := slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"}, func(p string) bool { return strings.HasPrefix(name, p) })
		if !ours || !e.Type().IsRegular() || strings.HasSuffix(name, ".GO") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.texts = append(m.texts, text{e.Name(), data})
		if strings.HasPrefix(name, "NOTICE") || strings.HasPrefix(name, "PATENTS") {
			continue // comes with a licence, and is none
		}
		for _, match := range licensecheck.Scan(data).Match {
			if !slices.Contains(m.ids, match.ID) && !match.IsURL {
				m.ids = append(m.ids, match.ID)
			}
		}
	}
	if len(m.ids) == 0 {
		return fmt.Errorf("%s@%s: no licence is recognised in %s", m.path, m.version, dir)
	}
	return nil
}

// texts is one file with the licences of all modules.
func texts(modules []module) []byte {
	var b bytes.Buffer
	b.WriteString("Penstock contains these parts, each under the licence that follows its name.\n")
	rule := strings.Repeat("-", 80)
	for _, m := range modules {
		for _, t := range m.texts {
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n%s\n\n%s\n", rule, m.path, m.version, t.name, rule, bytes.TrimSpace(t.data))
		}
	}
	return b.Bytes()
}
