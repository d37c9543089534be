// Package receipt writes down what an attempt of a job was, signed by its worker, so that
// anyone who has only the receipt and the patch can check where the patch comes from:
//
//	attempt ──Sign──▶ receipt ──Open──▶ Patch, Commit, Events: is this what it is about?
//
// A receipt is an envelope of DSSE (https://github.com/secure-systems-lab/dsse, v1.0) around a
// statement of in-toto (https://in-toto.io/Statement/v1) with the vocabulary of SLSA's provenance
// (https://slsa.dev/spec/v1.0/provenance), so other tools read it, too. Reading needs no pool
// and no network.
//
// The signature shows which worker's key wrote the statement, and that nothing of it was
// changed since. It does not make the worker honest: whoever has the key can sign anything.
package receipt

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Name is the name of the artifact that has a job's receipt.
const Name = "receipt.json"

// What a statement of ours says of itself.
const (
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://slsa.dev/provenance/v1"
	BuildType     = "https://github.com/penstock-run/penstock/receipt/v1"
)

// A Statement is what a worker signs.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     Provenance `json:"predicate"`
}

// A Resource is a thing by its digests, whose names say how they are computed: "sha256" of
// the content, "gitCommit".
type Resource struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest,omitempty"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

// A Provenance says how the subjects came about.
type Provenance struct {
	BuildDefinition Definition `json:"buildDefinition"`
	RunDetails      Details    `json:"runDetails"`
}

// A Definition is what was asked for, and what it began from.
type Definition struct {
	BuildType            string     `json:"buildType"`
	ExternalParameters   Request    `json:"externalParameters"`
	InternalParameters   Conditions `json:"internalParameters"`
	ResolvedDependencies []Resource `json:"resolvedDependencies,omitempty"`
}

// A Request is the job. Its prompt is in the digest only.
type Request struct {
	Job       string         `json:"job"`
	Session   string         `json:"session"`
	Queue     string         `json:"queue"`
	SHA256    string         `json:"sha256"` // of the job, as the pool keeps it
	Agent     string         `json:"agent"`
	Version   string         `json:"agentVersion,omitempty"`
	Model     string         `json:"model,omitempty"`
	Isolation jobs.Isolation `json:"isolation"`
}

// Conditions are what the worker added: its own rules.
type Conditions struct {
	Worker  string   `json:"worker"`
	Backend string   `json:"backend,omitempty"`
	Weaker  []string `json:"weaker,omitempty"` // what the jail could not enforce and the job allowed
	Mounts  []string `json:"mounts,omitempty"` // directories of the host that each jail without an image has seen
	Policy  string   `json:"policy"`           // SHA-256 of the worker's policy, as JSON
}

// Details are those of the attempt.
type Details struct {
	Builder    Builder    `json:"builder"`
	Metadata   Metadata   `json:"metadata"`
	Byproducts []Resource `json:"byproducts,omitempty"`
}

// A Builder is the program that ran the job, and its release.
type Builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version,omitempty"`
}

// Metadata says which attempt it was, and when.
type Metadata struct {
	InvocationID string    `json:"invocationId"` // JOB/ATTEMPT/EPOCH
	StartedOn    time.Time `json:"startedOn"`
	FinishedOn   time.Time `json:"finishedOn"`
}

// An Attempt is what a receipt is made of.
type Attempt struct {
	Job      jobs.Job
	Record   jobs.Record
	Epoch    uint64
	Result   jobs.Result // with its end, and its artifacts
	Commit   string      // that the branch of the result has got; empty: none
	Worker   string
	Release  string
	Policy   any      // of the worker
	Mounts   []string // directories of the worker's host that it shows to each jail without an image
	Events   Chain    // of the session, as far as the attempt wrote it
	Finished time.Time
}

// Statement returns what is to be signed. The first subject is the patch; of an attempt
// without changes it is an empty one.
func (a Attempt) Statement() (Statement, error) {
	job, err := digest(a.Job)
	if err != nil {
		return Statement{}, fmt.Errorf("digest of job %s: %w", a.Record.ID, err)
	}
	rules, err := digest(a.Policy)
	if err != nil {
		return Statement{}, fmt.Errorf("digest of the policy: %w", err)
	}
	s := Statement{Type: StatementType, PredicateType: PredicateType, Subject: a.subjects()}
	s.Predicate.BuildDefinition = Definition{
		BuildType: BuildType,
		ExternalParameters: Request{
			Job: a.Record.ID, Session: a.Record.Session, Queue: a.Record.Class, SHA256: job,
			Agent: a.Job.Agent.Name, Version: a.Job.Agent.Version, Model: a.Job.Agent.Model, Isolation: a.Job.Isolation,
		},
		InternalParameters: Conditions{Worker: a.Worker, Backend: a.Result.Backend, Weaker: a.Result.Weaker, Policy: rules},
	}
	if a.Job.Isolation != jobs.IsolationContainer {
		s.Predicate.BuildDefinition.InternalParameters.Mounts = a.Mounts
	}
	s.Predicate.BuildDefinition.ResolvedDependencies = a.dependencies()
	s.Predicate.RunDetails = Details{
		Builder: Builder{ID: "https://github.com/penstock-run/penstock", Version: map[string]string{"penstock": a.Release}},
		Metadata: Metadata{
			InvocationID: strings.Join([]string{a.Record.ID, strconv.Itoa(a.Record.Attempt), strconv.FormatUint(a.Epoch, 10)}, "/"),
			FinishedOn:   a.Finished.UTC(),
		},
		Byproducts: a.byproducts(),
	}
	if a.Record.Claimed != nil {
		s.Predicate.RunDetails.Metadata.StartedOn = a.Record.Claimed.UTC()
	}
	return s, nil
}

// The names of dependencies. That of the agent's program is agent@version.
const (
	BaseName  = "base"  // the commit that the workspace began from
	ImageName = "image" // what the jail's programs came from
	HostName  = "host"  // the same, of a jail without an image
)

// dependencies are what the attempt began from: the commit, the version of the agent's
// program, by the SHA-256 of the list of its files, and what the other programs came from.
func (a Attempt) dependencies() []Resource {
	var all []Resource
	if a.Result.BaseCommit != "" {
		all = append(all, Resource{Name: BaseName, URI: "git+" + a.Job.Repo.URL, Digest: map[string]string{"gitCommit": a.Result.BaseCommit}})
	}
	if a.Result.AgentDigest != "" {
		all = append(all, Resource{Name: a.Job.Agent.Name + "@" + a.Result.AgentVersion, Digest: map[string]string{"sha256": a.Result.AgentDigest}})
	}
	for _, root := range a.Result.Roots {
		from := Resource{Name: HostName, Digest: map[string]string{"sha256": strings.TrimPrefix(root, "sha256:")}}
		if a.Job.Isolation == jobs.IsolationContainer {
			from.Name, from.Annotations = ImageName, map[string]any{"image": a.Job.Image}
		}
		all = append(all, from)
	}
	return all
}

// subjects are the patch, and the commit of the branch if there is one.
func (a Attempt) subjects() []Resource {
	patch := a.Result.PatchSHA256
	if patch == "" {
		patch = hex.EncodeToString(sha256.New().Sum(nil))
	}
	all := []Resource{{Name: jobs.PatchName, Digest: map[string]string{"sha256": patch}}}
	if a.Commit != "" {
		all = append(all, Resource{Name: "refs/heads/" + a.Result.Branch, Digest: map[string]string{"gitCommit": a.Commit}})
	}
	return all
}

// byproducts are the result, the events, and the other artifacts.
func (a Attempt) byproducts() []Resource {
	r := a.Result
	all := []Resource{
		{Name: "result", Annotations: map[string]any{
			"outcome": r.Outcome, "reason": r.Reason, "model": r.Model, "usage": r.LastAttempt.Usage, "cost_usd": r.LastAttempt.CostUSD,
			"files_changed": r.FilesChanged, "commits": r.Commits, "checks": r.Checks,
		}},
		{Name: "events", Digest: map[string]string{"sha256": a.Events.Sum()}, Annotations: map[string]any{"first": a.Events.First, "last": a.Events.Last}},
	}
	files := slices.Clone(r.Artifacts)
	slices.SortFunc(files, func(x, y jobs.Artifact) int { return strings.Compare(x.Name, y.Name) })
	for _, file := range files {
		if file.Name != jobs.PatchName {
			all = append(all, Resource{Name: file.Name, Digest: map[string]string{"sha256": file.SHA256}})
		}
	}
	return all
}

// Sign makes the receipt of an attempt.
func Sign(key ed25519.PrivateKey, a Attempt) ([]byte, error) {
	s, err := a.Statement()
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return seal(key, payload)
}

// digest is the SHA-256 of a value as JSON.
func digest(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}
