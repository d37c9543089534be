package forgetest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// The modules that hold the other forges' descriptions; .ci/run downloads the same.
const (
	giteaModule  = "code.gitea.io/gitea@v1.27.3"
	gitlabModule = "gitlab.com/gitlab-org/api/client-go/v2@v2.64.0"
)

// module is the directory of a module that was downloaded; empty: it was not.
func module(name string) (string, error) {
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	dir := filepath.Join(string(bytes.TrimSpace(cache)), name)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return dir, nil
}

// inTemplate is what Gitea puts its own version and address into.
var inTemplate = regexp.MustCompile(`\{\{[^}]*\}\}`)

// describeGitea reads the OpenAPI description that Gitea serves. Forgejo's API is the same here.
func describeGitea() (*description, error) {
	dir, err := module(giteaModule)
	if dir == "" {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "templates/swagger/v1_openapi3_json.tmpl"))
	if err != nil {
		return nil, err
	}
	return read(inTemplate.ReplaceAll(data, nil), true)
}
