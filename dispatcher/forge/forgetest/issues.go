package forgetest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// found are the issues that a search finds: by repo:, label:, is:open and is:issue.
func (g *GitHub) found(r *http.Request) []Issue {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []Issue
	for _, issue := range g.Issues {
		is := true
		for term := range strings.FieldsSeq(r.URL.Query().Get("q")) {
			name, value, _ := strings.Cut(term, ":")
			switch {
			case name == "repo":
				is = is && issue.Repo == value
			case name == "label":
				is = is && slices.Contains(issue.Labels, value)
			case term == "is:open":
				is = is && !issue.Closed
			case term == "is:issue": // GitHub has been seen to list a pull request nonetheless
			default:
				g.Errorf("the stub cannot search for %q", term)
			}
		}
		if is {
			list = append(list, issue)
		}
	}
	return list
}

// page is the part of a list that a request is about.
func page(r *http.Request, all int) (from, to, number int) {
	size, err := strconv.Atoi(r.URL.Query().Get("per_page"))
	if err != nil {
		size = 30
	}
	number, err = strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil {
		number = 1
	}
	from = min(max(number-1, 0)*size, all)
	return from, min(from+size, all), number
}

// linkPages says in a header, as GitHub does, that there is another page.
func (g *GitHub) linkPages(h http.Header, r *http.Request) {
	all := len(g.found(r))
	_, to, number := page(r, all)
	if to == all {
		return
	}
	query := r.URL.Query()
	query.Set("page", strconv.Itoa(number+1))
	h.Set("Link", fmt.Sprintf(`<%s/search/issues?%s>; rel="next"`, g.URL, query.Encode()))
}

func (g *GitHub) findIssues(r *http.Request, _ []byte) (int, any) {
	all := g.found(r)
	from, to, _ := page(r, len(all))
	if from >= 1000 {
		return invalid("Only the first 1000 search results are available")
	}
	answer := g.say(FindIssues, "200", map[string]any{"total_count": len(all), "incomplete_results": false})
	like := map[string]any{}
	if items, ok := answer["items"].([]any); ok && len(items) > 0 {
		like, _ = items[0].(map[string]any)
	}
	items := []any{}
	for _, issue := range all[from:to] {
		items = append(items, g.showIssue(like, issue))
	}
	answer["items"] = items
	return http.StatusOK, answer
}

// showIssue is an issue as a search lists it. Its page has the address that it has on GitHub.
func (g *GitHub) showIssue(like map[string]any, issue Issue) map[string]any {
	one := map[string]any{}
	maps.Copy(one, like)
	state, labels, kind := "open", []any{}, "issues"
	for _, name := range issue.Labels {
		labels = append(labels, map[string]any{"name": name})
	}
	if issue.Closed {
		state = "closed"
	}
	if delete(one, "pull_request"); issue.Pull {
		kind = "pull"
		address := fmt.Sprintf("%s/repos/%s/pulls/%d", g.URL, issue.Repo, issue.Number)
		one["pull_request"] = map[string]any{"url": address, "html_url": address, "diff_url": address, "patch_url": address}
	}
	maps.Copy(one, map[string]any{
		"number": issue.Number, "title": issue.Title, "body": issue.Body, "state": state, "labels": labels,
		"repository_url": g.URL + "/repos/" + issue.Repo, "html_url": fmt.Sprintf("https://github.com/%s/%s/%d", issue.Repo, kind, issue.Number),
	})
	return one
}
