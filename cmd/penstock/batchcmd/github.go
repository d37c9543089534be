package batchcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/dispatcher/forge"
	"github.com/penstock-run/penstock/jobs/visible"
)

// patience is how long a search waits, over all its pages, because GitHub asks for it. Its
// limit for searches is over within a minute, that of other requests within an hour.
const patience = 5 * time.Minute

// issuesOf returns the issues that a search finds, as gh issue list prints them. A batch that
// continues has those of its beginning: issues that were edited, closed or opened meanwhile
// would make another batch of it.
func issuesOf(ctx context.Context, shell cli.Shell, flags runFlags) ([]byte, error) {
	kept, err := keptIssues(flags)
	if err != nil {
		return nil, err
	}
	if kept != nil {
		shell.Progressf("%s has the issues that the search found when the batch began", flags.out)
		return kept, nil
	}
	search, err := shell.Config.Forges.GitHub.Search(flags.fromGitHub)
	if err != nil {
		return nil, cli.Usage("", "--from-github: %w", err)
	}
	found, err := findIssues(ctx, shell, search, flags.mostIssues())
	if err != nil {
		return nil, err
	}
	return encodeIssues(found)
}

// keptIssues are those that the results directory has; nil: it is not of this search.
func keptIssues(flags runFlags) (kept []byte, err error) {
	dir, err := results.Load(flags.out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if dir.Manifest().Options[fromGitHub] != flags.fromGitHub {
		return nil, nil
	}
	in, err := results.Source(dir)
	if err != nil {
		return nil, err
	}
	kept, err = io.ReadAll(io.LimitReader(in, maxKept))
	return kept, errors.Join(err, in.Close())
}

// maxKept bounds the file of a directory that others may have written.
const maxKept = 1 << 30

// mostIssues is how many issues of the search are needed; 0: all.
func (f runFlags) mostIssues() int {
	if f.read.Filter != "" || f.read.Slice != "" || f.read.Shuffle {
		return 0
	}
	return f.read.Limit
}

// findIssues lists the issues of a search over its pages, each of them once: while it lists
// them, others may move to another page.
func findIssues(ctx context.Context, shell cli.Shell, search *forge.IssueSearch, most int) ([]forge.Issue, error) {
	var list []forge.Issue
	seen := map[string]bool{}
	left := patience
	for page := 1; ; page++ {
		got, err := findPage(ctx, shell, search, page, &left)
		if err != nil {
			return nil, err
		}
		if got.Total > forge.MostIssues && (most == 0 || most > forge.MostIssues) {
			return nil, cli.Usage("narrow the search, such as with created:>2026-01-01, or take the first ones with --limit",
				"--from-github: the search finds %d issues, and GitHub lists %d of them", got.Total, forge.MostIssues)
		}
		for _, issue := range got.Issues {
			if id := itemOf(issue); !seen[id] {
				seen[id] = true
				list = append(list, issue)
			}
		}
		if got.Last || most > 0 && len(list) >= most {
			return list, nil
		}
	}
}

// findPage lists one page, and waits where GitHub asks for that.
func findPage(ctx context.Context, shell cli.Shell, search *forge.IssueSearch, page int, left *time.Duration) (forge.IssuePage, error) {
	for {
		got, err := search.Page(ctx, page)
		busy, ok := errors.AsType[*forge.Error](err)
		switch {
		case err == nil:
			return got, nil
		case ctx.Err() != nil:
			return got, context.Cause(ctx)
		case !ok || busy.Kind != forge.Busy:
			return got, searchFailed(err)
		case busy.Wait > *left:
			return got, cli.Fail(cli.ExitUnreachable, "run the command again then; nothing was begun",
				"--from-github: GitHub takes no search before %s: %s", time.Now().Add(busy.Wait).Format(time.TimeOnly), visible.Line(busy.Message))
		}
		shell.Progressf("GitHub asks for a pause; the search goes on in %s", busy.Wait.Round(time.Second))
		*left -= busy.Wait
		select {
		case <-ctx.Done():
			return got, context.Cause(ctx)
		case <-time.After(busy.Wait):
		}
	}
}

// searchFailed says what a person can do about a search that GitHub did not answer.
func searchFailed(err error) error {
	code, hint := cli.ExitUsage, "GitHub's help for searching issues explains the language of the query"
	switch known, _ := errors.AsType[*forge.Error](err); {
	case known == nil, known.Kind == forge.Away:
		code, hint = cli.ExitUnreachable, "run the command again; nothing was begun"
	case known.Kind == forge.Denied, known.Kind == forge.Missing:
		code, hint = cli.ExitDenied, "penstock github setup says what the credential needs"
	}
	return cli.Fail(code, hint, "--from-github: %s", visible.Line(err.Error()))
}

// itemOf is the id of an issue's item before it becomes a name of files.
func itemOf(issue forge.Issue) string { return fmt.Sprintf("%s#%d", issue.Repo, issue.Number) }

// encodeIssues writes issues as gh issue list --json does, one a line.
func encodeIssues(list []forge.Issue) ([]byte, error) {
	type named struct {
		Name string `json:"name"`
	}
	type author struct {
		Login string `json:"login"`
	}
	var b bytes.Buffer
	for i, issue := range list {
		labels := []named{}
		for _, l := range issue.Labels {
			labels = append(labels, named{l})
		}
		line, err := json.Marshal(struct {
			Item   string  `json:"item"`
			Number int     `json:"number"`
			Title  string  `json:"title"`
			Body   string  `json:"body"`
			URL    string  `json:"url"`
			Author author  `json:"author"`
			Labels []named `json:"labels"`
		}{itemOf(issue), issue.Number, issue.Title, issue.Body, issue.URL, author{issue.Author}, labels})
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString(",\n")
		}
		b.Write(line)
	}
	return append(append([]byte("["), b.Bytes()...), "]\n"...), nil
}
