package forgetest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
)

// A Check is a check run of the stub, or a status of a commit, which has no text.
type Check struct {
	Repo, Commit, Name, ID, Outcome string
	Summary, Text, Page             string
}

// Checks are all check runs and statuses.
func (g *GitHub) Checks() []Check {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.checks)
}

func listChecks(g *GitHub, r *http.Request, _ []byte) (int, any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := []any{}
	for _, c := range g.checks {
		if c.Repo == repoOf(r) && c.Commit == r.PathValue("ref") && c.Name == cmp.Or(r.URL.Query().Get("check_name"), c.Name) {
			list = append(list, g.say(AddCheck, "201", map[string]any{"name": c.Name, "head_sha": c.Commit, "external_id": c.ID}))
		}
	}
	return http.StatusOK, g.say(ListChecks, "200", map[string]any{"total_count": len(list), "check_runs": list})
}

func addCheck(g *GitHub, r *http.Request, body []byte) (int, any) {
	var want struct {
		Name, Conclusion string
		Commit           string `json:"head_sha"`
		ID               string `json:"external_id"`
		Page             string `json:"details_url"`
		Output           struct{ Summary, Text string }
	}
	if err := json.Unmarshal(body, &want); err != nil {
		g.Errorf("%s: %v in %s", AddCheck, err, body)
	}
	Check{repoOf(r), want.Commit, want.Name, want.ID, want.Conclusion, want.Output.Summary, want.Output.Text, want.Page}.keep(g)
	return http.StatusCreated, g.say(AddCheck, "201", map[string]any{"name": want.Name, "head_sha": want.Commit, "external_id": want.ID})
}

func addStatus(g *GitHub, r *http.Request, body []byte) (int, any) {
	var want struct {
		State, Context, Description string
		Page                        string `json:"target_url"`
	}
	if err := json.Unmarshal(body, &want); err != nil {
		g.Errorf("%s: %v in %s", AddStatus, err, body)
	}
	Check{Repo: repoOf(r), Commit: r.PathValue("sha"), Name: want.Context, Outcome: want.State, Summary: want.Description, Page: want.Page}.keep(g)
	return http.StatusCreated, g.say(AddStatus, "201", map[string]any{"state": want.State, "context": want.Context})
}

func (c Check) keep(g *GitHub) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.checks = append(g.checks, c)
}
