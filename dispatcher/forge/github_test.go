package forge_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/forge"
	"github.com/penstock-run/penstock/dispatcher/forge/forgetest"
)

func gitHub(t *testing.T, s forge.GitHubSettings) forge.Forge {
	t.Helper()
	all, err := forge.Settings{GitHub: s}.Forges()
	if err != nil || len(all) != 1 {
		t.Fatalf("forges of %+v: %v, %v", s, all, err)
	}
	return all[0]
}

var change = forge.Change{Repo: "o/r", Head: "penstock/1", Title: "Fix it", Body: "the text"}

// What is sent to GitHub is what its own description says, and so are the stub's answers.
func TestRequestsAreAsGitHubDescribesThem(t *testing.T) {
	t.Parallel()
	forgetest.Described(t, forgetest.OfGitHub)
	stub := forgetest.NewGitHub(t, "secret")
	g := gitHub(t, forge.GitHubSettings{URL: stub.URL, Token: "secret"})
	wholeLife(t, stub, g)
	for _, f := range []forgetest.Fault{
		{Status: 403, Body: `{"message":"Resource not accessible","documentation_url":"https://docs.github.com/rest"}`},
		{Status: 422, Body: `{"message":"Validation Failed","documentation_url":"https://docs.github.com","errors":[{"resource":"PullRequest","code":"custom","message":"no"}]}`},
	} {
		stub.Next(forgetest.CreatePull, f)
		if _, err := g.Create(t.Context(), change); err == nil {
			t.Error("no error for", f.Status)
		}
	}
}

func wholeLife(t *testing.T, stub *forgetest.GitHub, g forge.Forge) {
	t.Helper()
	ctx := t.Context()
	if found, err := g.Find(ctx, "o/r", change.Head); found != nil || err != nil {
		t.Fatalf("before there is one: %v, %v", found, err)
	}
	made, err := g.Create(ctx, change)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Update(ctx, "o/r", made.Number, "another text"), g.Decorate(ctx, "o/r", made.Number, []string{"agent"}, []string{"ann"})); err != nil {
		t.Fatal(err)
	}
	found, err := g.Find(ctx, "o/r", change.Head)
	if err != nil || found == nil || found.Number != made.Number || found.Body != "another text" || !strings.HasSuffix(found.URL, "/o/r/pull/1") {
		t.Errorf("found %+v, %v", found, err)
	}
	got := stub.Pulls()[0]
	if !got.Draft || got.Base != "main" || got.Title != "Fix it" || !slices.Equal(got.Labels, []string{"agent"}) || !slices.Equal(got.Reviewers, []string{"ann"}) {
		t.Errorf("GitHub has %+v", got)
	}
	if _, err := g.Create(ctx, change); kind(err) != forge.Conflict {
		t.Errorf("a second one: %v", err)
	}
}

// showsChecks shows the same outcome twice, then another attempt's.
func showsChecks(t *testing.T, stub *forgetest.GitHub, g forge.Forge) []forgetest.Check {
	t.Helper()
	sha := strings.Repeat("ab", 20)
	c := forge.Check{Repo: "o/r", Commit: sha, ID: "job/1", Passed: true, Summary: "2 of 2 checks passed", Text: "the output", Page: "https://penstock.example.com/ui/jobs/1"}
	next := c
	next.ID, next.Passed, next.Page = "job/2", false, ""
	for _, c := range []forge.Check{c, c, next} {
		if err := g.Check(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	return stub.Checks()
}

// An App shows the checks as a check run, once for each attempt; a token as a status of the commit, of
// which the last one counts.
func TestChecksOnGitHub(t *testing.T) {
	t.Parallel()
	key, file := appKey(t)
	sha := strings.Repeat("ab", 20)
	app := forgetest.NewGitHub(t, "of-the-installation")
	app.Proof = func(jwt string) error { return checkProof(&key.PublicKey, jwt) }
	got := showsChecks(t, app, gitHub(t, forge.GitHubSettings{URL: app.URL, AppID: 7, AppKeyFile: file}))
	want := forgetest.Check{Repo: "o/r", Commit: sha, Name: "penstock", ID: "job/1", Outcome: "success", Summary: "2 of 2 checks passed", Text: "the output", Page: "https://penstock.example.com/ui/jobs/1"}
	if len(got) != 2 || got[0] != want || got[1].ID != "job/2" || got[1].Outcome != "failure" {
		t.Errorf("the App's are %+v", got)
	}
	plain := forgetest.NewGitHub(t, "secret")
	got = showsChecks(t, plain, gitHub(t, forge.GitHubSettings{URL: plain.URL, Token: "secret"}))
	want.ID, want.Text = "", ""
	if len(got) != 3 || got[0] != want || got[2].Outcome != "failure" {
		t.Errorf("the token's are %+v", got)
	}
	app.Next(forgetest.GetToken, forgetest.Fault{Status: 422, Body: `{"message":"The permissions requested are not granted to this installation.","documentation_url":"https://docs.github.com"}`})
	if err := gitHub(t, forge.GitHubSettings{URL: app.URL, AppID: 7, AppKeyFile: file}).Check(t.Context(), forge.Check{Repo: "o/r", Commit: sha}); kind(err) != forge.Conflict {
		t.Errorf("without the permission: %v", err)
	}
}

func kind(err error) forge.Kind {
	e, ok := errors.AsType[*forge.Error](err)
	if !ok {
		return forge.Kind(fmt.Sprint(err))
	}
	return e.Kind
}

// Each failure says what can be done about it, and how long to wait. No text of an error has
// the credential.
func TestFailuresOfGitHub(t *testing.T) {
	t.Parallel()
	stub := forgetest.NewGitHub(t, "secret")
	g := gitHub(t, forge.GitHubSettings{URL: stub.URL, Token: "secret"})
	limit := `{"message":"You have exceeded a secondary rate limit.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`
	reset := fmt.Sprint(time.Now().Add(time.Hour).Unix())
	for _, c := range []struct {
		name     string
		fault    forgetest.Fault
		want     forge.Kind
		from, to time.Duration
	}{
		{"secondary limit", forgetest.Fault{Status: 403, Body: limit, Header: map[string]string{"Retry-After": "7"}}, forge.Busy, 7 * time.Second, 7 * time.Second},
		{"secondary limit without a time", forgetest.Fault{Status: 403, Body: limit}, forge.Busy, time.Minute, time.Minute},
		{"primary limit", forgetest.Fault{Status: 403, Body: `{"message":"API rate limit exceeded","documentation_url":"https://docs.github.com"}`, Header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}}, forge.Busy, 50 * time.Minute, 61 * time.Minute},
		{"429", forgetest.Fault{Status: 429, Header: map[string]string{"Retry-After": "3"}}, forge.Busy, 3 * time.Second, 3 * time.Second},
		{"no right", forgetest.Fault{Status: 403, Body: `{"message":"Resource not accessible by personal access token","documentation_url":"https://docs.github.com"}`}, forge.Missing, 0, 0},
		{"no repository", forgetest.Fault{Status: 404}, forge.Missing, 0, 0},
		{"wrong token", forgetest.Fault{Status: 401}, forge.Denied, 0, 0},
		{"broken", forgetest.Fault{Status: 502, Body: "<html>"}, forge.Away, 0, 0},
	} {
		stub.Next(forgetest.ListPulls, c.fault)
		_, err := g.Find(t.Context(), "o/r", "b")
		e, ok := errors.AsType[*forge.Error](err)
		if !ok || e.Kind != c.want || e.Wait < c.from || e.Wait > c.to || strings.Contains(e.Error(), "secret-") {
			t.Errorf("%s: %#v, want %s", c.name, err, c.want)
		}
	}
	if _, err := g.Create(t.Context(), forge.Change{Repo: "o/r", Head: "same", Base: "main"}); kind(err) != forge.Conflict || !strings.Contains(err.Error(), "No commits between") {
		t.Errorf("nothing to merge: %v", err)
	}
	stub.Next(forgetest.CreatePull, forgetest.Fault{Drop: true})
	if _, err := g.Create(t.Context(), change); kind(err) != forge.Away || len(stub.Pulls()) != 1 {
		t.Errorf("an answer that is lost: %v, and there are %v", err, stub.Pulls())
	}
	if err := g.Decorate(t.Context(), "o/r", 7, nil, []string{"stranger"}); kind(err) != forge.Missing {
		t.Errorf("no pull request: %v", err)
	}
}

// appKey makes the key of an App, and a file that has it.
func appKey(t *testing.T) (key *rsa.PrivateKey, file string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "app.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600); err != nil {
		t.Fatal(err)
	}
	return key, file
}

// An App proves itself with a token that is signed, gets one for the repository, and keeps
// it. One that is not valid any more is replaced.
func TestGitHubApp(t *testing.T) {
	t.Parallel()
	key, file := appKey(t)
	stub := forgetest.NewGitHub(t, "of-the-installation")
	stub.Proof = func(jwt string) error { return checkProof(&key.PublicKey, jwt) }
	g := gitHub(t, forge.GitHubSettings{URL: stub.URL, AppID: 7, AppKeyFile: file})
	wholeLife(t, stub, g)
	if n := stub.Calls(forgetest.GetToken); n != 1 {
		t.Errorf("%d tokens were made, want 1", n)
	}
	settings := forge.GitHubSettings{URL: stub.URL, AppID: 7, AppKeyFile: file}
	if said, err := settings.Probe(t.Context(), "o/r"); err != nil || !strings.Contains(said, "pull_requests write and contents read") || !strings.Contains(said, "it needs checks: write") {
		t.Errorf("the probe says %q, %v", said, err)
	}
	stub.Permissions = map[string]string{"contents": "read"}
	if _, err := settings.Probe(t.Context(), "o/r"); kind(err) != forge.Missing || !strings.Contains(err.Error(), `pull_requests ""`) {
		t.Errorf("without the permission the probe says %v", err)
	}
	made := stub.Calls(forgetest.GetToken)
	stub.Next(forgetest.ListPulls, forgetest.Fault{Status: 401})
	if _, err := g.Find(t.Context(), "o/r", "b"); kind(err) != forge.Denied {
		t.Error(err)
	}
	if _, err := g.Find(t.Context(), "o/r", "b"); err != nil || stub.Calls(forgetest.GetToken) != made+1 {
		t.Errorf("%d tokens, %v", stub.Calls(forgetest.GetToken), err)
	}
	stub.Next(forgetest.FindApp, forgetest.Fault{Status: 404, Body: `{"message":"Not Found","documentation_url":"https://docs.github.com"}`})
	if _, err := g.Find(t.Context(), "o/other", "b"); kind(err) != forge.Missing || !strings.Contains(err.Error(), "/repos/o/other/installation") {
		t.Errorf("not installed: %v", err)
	}
}

func checkProof(key *rsa.PublicKey, jwt string) error {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return errors.New("it has not three parts")
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature); err != nil {
		return err
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	var claims struct {
		Iat, Exp int64
		Iss      string
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return err
	}
	if now := time.Now().Unix(); claims.Iss != "7" || claims.Iat > now || claims.Exp <= now || claims.Exp-claims.Iat > 600 {
		return fmt.Errorf("claims %s", text)
	}
	return nil
}

func TestRepositoriesOfForges(t *testing.T) {
	t.Parallel()
	all, err := forge.Settings{
		GitHub: forge.GitHubSettings{Token: "t"}, GitLab: forge.TokenSettings{URL: "https://gitlab.example.com", Token: "t"},
		Gitea: forge.TokenSettings{URL: "https://example.com/git", Token: "t"},
	}.Forges()
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"https://github.com/o/r": "GitHub o/r", "https://github.com/o/r.git": "GitHub o/r", "git@github.com:o/r.git": "GitHub o/r",
		"ssh://git@ssh.github.com:443/o/r.git": "GitHub o/r", "HTTPS://GitHub.com/o/r/": "GitHub o/r",
		"https://gitlab.example.com/a/b/c.git": "GitLab a/b/c", "https://example.com/git/o/r": "Gitea o/r",
		"https://github.com/o": "", "https://github.com/o/r/x": "", "https://github.com/../r": "", "https://github.com.evil.com/o/r": "",
		"https://evil.com/github.com/o/r": "", "/srv/github.com/o/r": "", "https://github.com/o/r?x=%2F": "GitHub o/r", "git@evil:github.com/o/r": "", "": "",
	} {
		got := ""
		for _, f := range all {
			if name, ok := f.Repository(address); ok {
				got += f.Name() + " " + name
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

func TestSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]forge.Settings{
		"begin with https://":              {GitLab: forge.TokenSettings{URL: "http://gitlab.example.com", Token: "t"}},
		"token_file: is needed":            {Gitea: forge.TokenSettings{URL: "https://codeberg.org"}},
		"url: is needed":                   {GitLab: forge.TokenSettings{Token: "t"}},
		"beside app_id":                    {GitHub: forge.GitHubSettings{Token: "t", AppID: 1, AppKeyFile: "f"}},
		"app_id: is needed":                {GitHub: forge.GitHubSettings{AppID: 1}},
		"is not the address":               {PublicURL: "penstock"},
		"github: token_file: is needed be": {GitHub: forge.GitHubSettings{URL: "https://ghe.example.com/api/v3"}},
	} {
		if _, err := s.Forges(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

// A credential file that is missing, or empty, is told by its name.
func TestACredentialFileIsReadEachTime(t *testing.T) {
	t.Parallel()
	stub := forgetest.NewGitHub(t, "second")
	file := filepath.Join(t.TempDir(), "token")
	g := gitHub(t, forge.GitHubSettings{URL: stub.URL, TokenFile: file})
	if _, err := g.Find(t.Context(), "o/r", "b"); kind(err) != forge.Denied || !strings.Contains(err.Error(), file) {
		t.Errorf("without a file: %v", err)
	}
	for _, token := range []string{"first", "second\n"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Find(t.Context(), "o/r", "b"); (err == nil) != (token == "second\n") {
			t.Errorf("with %q: %v", token, err)
		}
	}
}
