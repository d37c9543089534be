package hooks

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/penstock-run/penstock/jobs"
)

// errForged says that a delivery does not come from who knows the secret.
var errForged = errors.New("the signature, or the secret, is missing or wrong")

// A source is a kind of sender.
type source struct {
	// genuine checks a delivery against the secret.
	genuine func(header http.Header, body, secret []byte) bool
	// id and event name the headers with the delivery's id and its kind, the first that
	// is there.
	id, event  []string
	require    string // where the rule does not say
	api        string // the default address of its API
	permission func(d delivery) (path string, may func(answer []byte) bool)
}

var sources = map[string]source{
	"github": {
		genuine: signedBy("X-Hub-Signature-256"), id: []string{"X-Github-Delivery"}, event: []string{"X-Github-Event"},
		require: requireWrite, api: "https://api.github.com", permission: githubPermission,
	},
	"gitea": {
		genuine: signedBy("X-Forgejo-Signature", "X-Gitea-Signature", "X-Hub-Signature-256"),
		id:      []string{"X-Forgejo-Delivery", "X-Gitea-Delivery"}, event: []string{"X-Forgejo-Event", "X-Gitea-Event"},
		require: requireWrite, permission: giteaPermission,
	},
	"gitlab": {
		genuine: func(header http.Header, _, secret []byte) bool { return same(header.Get("X-Gitlab-Token"), secret) },
		id:      []string{"Idempotency-Key", "X-Gitlab-Event-Uuid"}, event: []string{"X-Gitlab-Event"},
		require: requireWrite, api: "https://gitlab.com/api/v4", permission: gitlabPermission,
	},
	"standard": {
		genuine: func(header http.Header, body, secret []byte) bool {
			hook, err := standardwebhooks.NewWebhook(string(secret))
			return err == nil && hook.Verify(body, header) == nil
		},
		id: []string{standardwebhooks.HeaderWebhookID}, require: requireAnyone,
	},
	"bearer": {
		genuine: func(header http.Header, _, secret []byte) bool {
			token, ok := strings.CutPrefix(header.Get("Authorization"), "Bearer ")
			return ok && same(token, secret)
		},
		id: []string{"Idempotency-Key", standardwebhooks.HeaderWebhookID}, require: requireAnyone,
	},
}

func sourceNames() []string { return slices.Sorted(maps.Keys(sources)) }

// signedBy checks the HMAC with SHA-256 of the body, in hexadecimal, of the first of the
// headers that is there.
func signedBy(headers ...string) func(http.Header, []byte, []byte) bool {
	return func(header http.Header, body, secret []byte) bool {
		given, err := hex.DecodeString(strings.TrimPrefix(first(header, headers), "sha256="))
		if err != nil {
			return false
		}
		mac := hmac.New(sha256.New, secret)
		mac.Write(body)
		return hmac.Equal(given, mac.Sum(nil))
	}
}

func same(given string, secret []byte) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256(secret) // of one length
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

func first(header http.Header, names []string) string {
	for _, name := range names {
		if value := header.Get(name); value != "" {
			return value
		}
	}
	return ""
}

// A delivery is one that is genuine.
type delivery struct {
	id     string // as the sender names it; empty: it does not
	event  string
	sender string // the user who caused it; empty: not known
	user   int64  // the sender's number, where the forge has one
	bot    bool
	path   string // of the repository on its forge
	repo   string // where it is cloned from
	issue  *jobs.Issue
	// comment is what was written to the issue or the pull request; empty: it is no comment.
	comment string
	body    map[string]any
	raw     []byte
	trace   jobs.Trace // of the request that brought it
}

// environment is what an expression of a rule may name.
func (d delivery) environment() map[string]any {
	return map[string]any{"event": d.event, "sender": d.sender, "body": d.body}
}

// maxID bounds what becomes part of a job's key.
const maxID = 128

// read checks a delivery and reads what rules and jobs need of it.
func (h *hook) read(header http.Header, body []byte) (delivery, error) {
	source := sources[h.Source]
	if !source.genuine(header, body, h.secret) {
		return delivery{}, errForged
	}
	if media, _, err := mime.ParseMediaType(header.Get("Content-Type")); err != nil || media != "application/json" {
		return delivery{}, fmt.Errorf("the delivery is %q; have it sent as application/json", header.Get("Content-Type"))
	}
	d := delivery{id: first(header, source.id), event: first(header, source.event), raw: body}
	if len(d.id) > maxID || strings.ContainsFunc(d.id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return delivery{}, fmt.Errorf("the delivery's id is not of 1 to %d printable characters", maxID)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(&d.body); err != nil || d.body == nil {
		return delivery{}, errors.New("the delivery is not an object in JSON")
	}
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		// Some other sender gives these fields another meaning.
		p = payload{}
	}
	p.describe(&d)
	return d, nil
}

// A payload has the fields of deliveries that become part of a job, as the forges name
// them.
type payload struct {
	Type   string `json:"type"` // of Standard Webhooks
	Sender struct {
		Login string `json:"login"`
		Type  string `json:"type"`
	} `json:"sender"`
	User struct { // of GitLab
		ID       int64  `json:"id"`
		Username string `json:"username"`
	} `json:"user"`
	UserID     int64  `json:"user_id"`       // of GitLab's push and tag events
	UserName   string `json:"user_username"` // of the same
	Repository struct {
		Path  string `json:"full_name"`
		Clone string `json:"clone_url"`
	} `json:"repository"`
	Project struct { // of GitLab
		Path  string `json:"path_with_namespace"`
		Clone string `json:"git_http_url"`
	} `json:"project"`
	Issue   *report `json:"issue"`
	Pull    *report `json:"pull_request"`
	Object  *report `json:"object_attributes"` // of GitLab
	Comment struct {
		Body string `json:"body"`
	} `json:"comment"`
	Review struct {
		Body string `json:"body"`
	} `json:"review"`
}

// A report is an issue or a pull request. GitLab names two of its fields otherwise.
type report struct {
	Number      int    `json:"number"`
	IID         int    `json:"iid"`
	Title       string `json:"title"`
	Body        string `json:"body"`
	Description string `json:"description"`
	URL         string `json:"html_url"`
	GitLabURL   string `json:"url"`
	Note        string `json:"note"` // of GitLab's comments
	Labels      []struct {
		Name  string `json:"name"`
		Title string `json:"title"`
	} `json:"labels"`
}

func (p payload) describe(d *delivery) {
	if d.event == "" {
		d.event = p.Type
	}
	d.sender, d.bot = cmp.Or(p.Sender.Login, p.User.Username, p.UserName), p.Sender.Type == "Bot"
	d.user = max(p.User.ID, p.UserID)
	d.path, d.repo = cmp.Or(p.Repository.Path, p.Project.Path), cmp.Or(p.Repository.Clone, p.Project.Clone)
	for _, r := range []*report{p.Issue, p.Pull, p.Object} {
		if r == nil || d.issue != nil {
			continue
		}
		d.issue = &jobs.Issue{Number: max(r.Number, r.IID), Title: r.Title, Body: cmp.Or(r.Body, r.Description), URL: cmp.Or(r.URL, r.GitLabURL)}
		for _, l := range r.Labels {
			d.issue.Labels = append(d.issue.Labels, cmp.Or(l.Name, l.Title))
		}
	}
	comment := p.Comment.Body
	if p.Object != nil && p.Object.Note != "" {
		comment = p.Object.Note
	}
	d.comment = cmp.Or(comment, p.Review.Body)
	if d.issue != nil && comment != "" {
		d.issue.Body += "\n\n---\n\n" + comment
	}
}
