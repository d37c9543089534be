package schema

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Each operation and each kind of event is in the document, and each reference leads to
// something.
func TestAsyncAPI(t *testing.T) {
	t.Parallel()
	raw, err := AsyncAPI()
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Channels   map[string]struct{ Messages map[string]any }
		Operations map[string]map[string]any
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	for _, row := range operation.All() {
		if document.Operations[camel(row.Name)] == nil {
			t.Errorf("operation %s is missing", row.Name)
		}
	}
	for _, row := range event.Kinds() {
		if document.Channels["sessionEvents"].Messages[string(row.Kind)] == nil {
			t.Errorf("event %s is missing", row.Kind)
		}
	}
	var whole any
	if err := json.Unmarshal(raw, &whole); err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(raw), `"$ref": "#/`) {
		path, _, _ := strings.Cut(part, `"`)
		if strings.HasPrefix(part, "{") {
			continue // what is before the first reference
		}
		at := whole
		for name := range strings.SplitSeq(path, "/") {
			inside, _ := at.(map[string]any)
			at = inside[name]
		}
		if at == nil {
			t.Errorf("#/%s leads to nothing", path)
		}
	}
	again, err := AsyncAPI()
	if err != nil || !reflect.DeepEqual(raw, again) {
		t.Errorf("the document is not the same twice: %v", err)
	}
}

// The document is one by the schema of those who wrote the specification.
func TestAsyncAPIByItsSchema(t *testing.T) {
	t.Parallel()
	schema := officialSchema(t)
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := AsyncAPI()
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(document); err != nil {
		t.Errorf("the document: %v", err)
	}
	document["channels"].(map[string]any)["sessionEvents"].(map[string]any)["unknown"] = "x"
	if resolved.Validate(document) == nil {
		t.Error("a field that the specification does not have is valid")
	}
}

// officialSchema is that of AsyncAPI 3.0, as the package @asyncapi/specs has it.
func officialSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv("NODE_PATH")) {
		data, err := os.ReadFile(filepath.Join(dir, "@asyncapi", "specs", "schemas", "3.0.0-without-$id.json"))
		if os.IsNotExist(err) {
			continue
		}
		var schema jsonschema.Schema
		if err == nil {
			err = json.Unmarshal(data, &schema)
		}
		if err != nil {
			t.Fatal(err)
		}
		schema.Schema += "#" // the dialect's full name
		return &schema
	}
	const why = "no schema of AsyncAPI: npm install @asyncapi/specs, and set NODE_PATH to its node_modules"
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), "asyncapi") {
		t.Fatal(why)
	}
	t.Skip(why)
	return nil
}
