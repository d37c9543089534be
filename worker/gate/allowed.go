package gate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/inspection"
)

// Allowed is what calls may ask for. A name that ends with * stands for all that begin so, and
// an empty list for all names.
type Allowed struct {
	Models []string
	Tiers  []string // service tiers and speeds
	Geos   []string // places where the model is to run
	Betas  []string // beta features, in a header or in the body
	// Files and Containers are what the provider keeps. A container that is made for the call
	// is called "auto".
	Files, Containers []string
}

// A forbiddenError is what a request asks for and must not.
type forbiddenError struct{ field, what string }

func (e forbiddenError) Error() string { return e.what }

// permit says what of a call's request is not permitted.
func (l Limits) permit(asks inspection.Inquiry, header http.Header) error {
	asks.Betas = slices.Concat(betas(header), asks.Betas)
	if err := l.Policy.permit(asks, "of the policy"); err != nil {
		return err
	}
	return l.Job.permit(asks, "that the job allows")
}

// betas are the beta features that headers ask for.
func betas(header http.Header) (all []string) {
	for _, name := range []string{"Anthropic-Beta", "Openai-Beta"} {
		for beta := range strings.SplitSeq(strings.Join(header[name], ","), ",") {
			if beta = strings.TrimSpace(beta); beta != "" {
				all = append(all, beta)
			}
		}
	}
	return all
}

// permit says what of a request is not among those of its owner.
func (a Allowed) permit(asks inspection.Inquiry, owner string) error {
	bounded := false
	for _, list := range []struct {
		allowed, asked []string
		field, noun    string
	}{
		{a.Betas, asks.Betas, "beta", "beta"},
		{a.Models, asks.Models(), "model", "model"},
		{a.Tiers, asks.Tiers, "service_tier", "service tier or speed"},
		{a.Geos, asks.Geos, "inference_geo", "place of inference"},
		{a.Files, asks.Files, "file_id", "file"},
		{a.Containers, asks.Containers, "container_id", "container"},
	} {
		bounded = bounded || len(list.allowed) > 0
		for _, name := range list.asked {
			if len(list.allowed) > 0 && !named(list.allowed, name) {
				return forbiddenError{list.field, fmt.Sprintf("%s %.60q is not among those %s", list.noun, name, owner)}
			}
		}
	}
	if bounded && asks.Hidden != "" {
		return forbiddenError{what: fmt.Sprintf("%.60q may have what is not among those %s", asks.Hidden, owner)}
	}
	return nil
}

// named reports whether a name is on a list. The names of providers are of plain
// characters: others may be read as several names.
func named(list []string, name string) bool {
	return !strings.ContainsFunc(name, odd) && slices.ContainsFunc(list, func(allowed string) bool {
		before, all := strings.CutSuffix(allowed, "*")
		return name == allowed || all && strings.HasPrefix(name, before)
	})
}

func odd(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`,;"'\`, r) }
