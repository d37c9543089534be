package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// errNotPermitted says that the sender of a delivery may not cause jobs.
var errNotPermitted = errors.New("may not cause jobs by this hook")

// permits reports whether the sender may cause jobs: nil, an [errNotPermitted], or why
// that is not known.
func (h *hook) permits(ctx context.Context, client *http.Client, d delivery) error {
	named := func(list []string) bool {
		return d.sender != "" && slices.ContainsFunc(list, func(name string) bool { return strings.EqualFold(name, d.sender) })
	}
	switch {
	case named(h.Bots), !d.bot && named(h.Users):
		return nil
	case d.bot:
		return fmt.Errorf("bot %q is not named in bots, and %w", d.sender, errNotPermitted)
	case h.Require == requireAnyone:
		return nil
	case h.Require == requireListed || d.sender == "" || d.path == "":
		return fmt.Errorf("user %q %w", d.sender, errNotPermitted)
	}
	path, may := sources[h.Source].permission(d)
	status, answer, err := h.ask(ctx, client, path)
	switch {
	case err != nil:
		return fmt.Errorf("ask %s whether user %q may write: %w", h.API, d.sender, err)
	case status == http.StatusNotFound || status == http.StatusOK && !may(answer):
		return fmt.Errorf("user %q may not write to %s, and %w", d.sender, d.path, errNotPermitted)
	case status != http.StatusOK:
		return fmt.Errorf("ask %s whether user %q may write: status %d", h.API, d.sender, status)
	}
	return nil
}

// ask makes a request to the forge's API.
func (h *hook) ask(ctx context.Context, client *http.Client, path string) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.API+path, nil)
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+h.token)
	r.Header.Set("Accept", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return answer.StatusCode, body, err
}

// segments escapes the parts of a repository's path.
func segments(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}

// githubPermission: https://docs.github.com/en/rest/collaborators/collaborators
func githubPermission(d delivery) (string, func([]byte) bool) {
	return "/repos/" + segments(d.path) + "/collaborators/" + url.PathEscape(d.sender) + "/permission", permission("admin", "write")
}

// giteaPermission: the same question in the API of Gitea and Forgejo, whose base ends in
// /api/v1.
func giteaPermission(d delivery) (string, func([]byte) bool) {
	return "/repos/" + segments(d.path) + "/collaborators/" + url.PathEscape(d.sender) + "/permission", permission("owner", "admin", "write")
}

func permission(enough ...string) func([]byte) bool {
	return func(answer []byte) bool {
		var given struct{ Permission string }
		return json.Unmarshal(answer, &given) == nil && slices.Contains(enough, given.Permission)
	}
}

// gitlabDeveloper is the lowest level that may push, says
// https://docs.gitlab.com/api/members/
const gitlabDeveloper = 30

func gitlabPermission(d delivery) (string, func([]byte) bool) {
	return "/projects/" + url.PathEscape(d.path) + "/members/all/" + strconv.FormatInt(d.user, 10), func(answer []byte) bool {
		var member struct {
			Level int    `json:"access_level"`
			State string `json:"state"`
		}
		return json.Unmarshal(answer, &member) == nil && member.Level >= gitlabDeveloper && member.State == "active"
	}
}
