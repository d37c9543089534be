package forge

import (
	"context"
	"errors"
	"fmt"
)

// Probe tries the credential of GitHub on a repository, without changing anything there, and
// says what it may do. A fine-grained token does not tell whether it may write.
func (s GitHubSettings) Probe(ctx context.Context, repo string) (string, error) {
	g, err := newGitHub(s)
	if err != nil {
		return "", err
	}
	if g == nil {
		return "", errors.New("the settings name no credential of GitHub")
	}
	if name, ok := g.Repository("https://" + g.hosts[0] + "/" + repo); !ok || name != repo {
		return "", fmt.Errorf("%q is not OWNER/REPOSITORY", repo)
	}
	said := "the token reads its pull requests; whether it may open one shows when it does"
	if g.app != nil {
		if said, err = g.app.probe(ctx, repo); err != nil {
			return "", err
		}
	}
	if _, err := g.Find(ctx, repo, "penstock/none"); err != nil {
		return "", err
	}
	return said, nil
}

// probe says which permissions the installation in a repository has, and refuses it
// without those that are needed.
func (a *app) probe(ctx context.Context, repo string) (string, error) {
	_, at, err := a.installation(ctx, repo)
	if err != nil {
		return "", err
	}
	has := at.GetPermissions()
	pulls, contents := has.GetPullRequests(), has.GetContents()
	if pulls != "write" || contents != "read" && contents != "write" {
		return "", &Error{Kind: Missing, Message: fmt.Sprintf("the App is installed there with pull_requests %q and contents %q; it needs write and read", pulls, contents)}
	}
	said := fmt.Sprintf("the App is installed there, with pull_requests %s and contents %s", pulls, contents)
	if has.GetIssues() != "write" {
		said += "; it cannot comment on issues, for which it needs issues: write"
	}
	if has.GetChecks() != "write" {
		said += "; it cannot show the pool's checks, for which it needs checks: write"
	}
	return said, nil
}
