package aboutcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/semver"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

const (
	newestRelease = "https://api.github.com/repos/penstock-run/penstock/releases/latest"
	releasesHint  = "https://github.com/penstock-run/penstock/releases lists all releases"
	askWithin     = 10 * time.Second
	answerLimit   = 1 << 20 // bytes; the notes of a release are part of the answer
)

// Newest is the newest release, beside a build.
type Newest struct {
	Version    string `json:"version"`
	URL        string `json:"url"`
	Newer      bool   `json:"newer"`
	Comparable bool   `json:"comparable"` // not where the build is of no release
}

// askNewest asks a feed, in GitHub's form, for the newest release.
func askNewest(ctx context.Context, feed, ours string) (Newest, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askWithin, fmt.Errorf("no answer within %v", askWithin))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, feed, http.NoBody)
	if err != nil {
		return Newest{}, cli.Usage("", "--feed: %w", err)
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("User-Agent", "penstock") // GitHub refuses requests without one
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Newest{}, cli.Fail(cli.ExitUnreachable, releasesHint, "ask for the newest release: %w", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return Newest{}, cli.Fail(cli.ExitNotFound, "", "there is no release at %s", feed)
	default:
		return Newest{}, cli.Fail(cli.ExitUnreachable, releasesHint, "ask for the newest release: %s answers %s", feed, resp.Status)
	}
	var release struct {
		Version string `json:"tag_name"`
		URL     string `json:"html_url"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, answerLimit)).Decode(&release)
	if err != nil || !semver.IsValid(release.Version) {
		return Newest{}, cli.Fail(cli.ExitUnreachable, releasesHint, "ask for the newest release: the answer of %s is no release", feed)
	}
	return compare(Newest{Version: release.Version, URL: release.URL}, ours), nil
}

// What git describe adds to the newest tag before a commit.
var sinceTag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(-\d+-g[0-9a-f]+)?(-dirty)?$`) })

// compare says whether a release is newer than a build. One between two releases counts
// as the earlier of them.
func compare(n Newest, ours string) Newest {
	base := "v" + strings.TrimPrefix(sinceTag().ReplaceAllString(ours, ""), "v")
	n.Comparable = semver.IsValid(base) && strings.Count(base, ".") >= 2
	n.Newer = n.Comparable && semver.Compare(n.Version, base) > 0
	return n
}
