package schema

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
)

// Each route is in the document, with an id of its own, and each reference leads to
// something.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	raw, err := OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths      map[string]map[string]map[string]any
		Components map[string]map[string]any
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, route := range httpapi.Routes() {
		if route.Status == http.StatusSwitchingProtocols {
			continue
		}
		described := document.Paths[strings.ReplaceAll(route.Path, "...}", "}")][strings.ToLower(route.Method)]
		id, _ := described["operationId"].(string)
		if id == "" || ids[id] != "" {
			t.Errorf("%s %s has the id %q, as %s has", route.Method, route.Path, id, ids[id])
		}
		ids[id] = route.Path
		if _, has := described["requestBody"]; has != route.TakesBody() {
			t.Errorf("%s %s has a body: %v", route.Method, route.Path, has)
		}
	}
	for part := range strings.SplitSeq(string(raw), `"$ref": "`) {
		ref, _, _ := strings.Cut(part, `"`)
		if at := strings.Split(ref, "/"); at[0] == "#" && document.Components[at[2]][at[3]] == nil {
			t.Errorf("%s leads to nothing", ref)
		}
	}
	again, err := OpenAPI()
	if err != nil || !reflect.DeepEqual(raw, again) {
		t.Errorf("the document is not the same twice: %v", err)
	}
}
