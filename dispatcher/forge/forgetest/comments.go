package forgetest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
)

// A Comment is one on an issue of the stub.
type Comment struct {
	Repo   string
	Number int // of the issue
	Body   string
}

// A Remark is a comment of a review on lines of a file.
type Remark struct{ Path, Hunk, Body string }

// Comments are all comments on issues.
func (g *GitHub) Comments() []Comment {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.comments)
}

// Say has a person comment on an issue.
func (g *GitHub) Say(c Comment) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.comments = append(g.comments, c)
}

func listComments(g *GitHub, r *http.Request, _ []byte) (int, any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := []any{}
	for i, c := range g.comments {
		if c.Repo == repoOf(r) && strconv.Itoa(c.Number) == r.PathValue("issue_number") {
			list = append(list, g.say(ListComments, "200", map[string]any{"id": i + 1, "body": c.Body}))
		}
	}
	return http.StatusOK, list
}

func addComment(g *GitHub, r *http.Request, body []byte) (int, any) {
	var want struct{ Body string }
	number, err := strconv.Atoi(r.PathValue("issue_number"))
	if err != nil || json.Unmarshal(body, &want) != nil || want.Body == "" {
		g.Errorf("%s: %v in %s", AddComment, err, body)
	}
	g.Say(Comment{Repo: repoOf(r), Number: number, Body: want.Body})
	return http.StatusCreated, g.say(AddComment, "201", map[string]any{"body": want.Body})
}

func permission(g *GitHub, r *http.Request, _ []byte) (int, any) {
	may := "read"
	if slices.Contains(g.Writers, r.PathValue("username")) {
		may = "write"
	}
	return http.StatusOK, g.say(GetPermission, "200", map[string]any{"permission": may, "role_name": may, "user": nil})
}

func reviewComments(g *GitHub, r *http.Request, _ []byte) (int, any) {
	list := []any{}
	for _, remark := range g.Remarks[r.PathValue("review_id")] {
		list = append(list, g.say(ReviewComments, "200", map[string]any{"path": remark.Path, "diff_hunk": remark.Hunk, "body": remark.Body}))
	}
	return http.StatusOK, list
}
