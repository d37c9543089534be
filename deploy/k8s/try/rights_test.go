package try

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The accounts of our pods may do nothing that any other account may not.
func TestAccountsHaveNoRights(t *testing.T) {
	namespace(t, "rights")
	if err := upgrade(t, "rights", "cluster.yaml"); err != nil {
		t.Fatal(err)
	}
	accounts, err := client.CoreV1().ServiceAccounts("rights").List(t.Context(), metav1.ListOptions{LabelSelector: ours})
	if err != nil {
		t.Fatal(err)
	}
	if len(accounts.Items) != 3 {
		t.Errorf("accounts: %v, want those of server, broker and worker", accounts.Items)
	}
	any := rules(t, "rights", "default")
	for _, account := range accounts.Items {
		if got := rules(t, "rights", account.Name); got != any {
			t.Errorf("%s may do\n%s\nany other account\n%s", account.Name, got, any)
		}
		for _, right := range []string{
			"get secrets", "list pods", "patch pods", "create pods", "create pods/exec", "delete jobs.batch",
			"patch deployments.apps", "get configmaps", "create serviceaccounts/token", "get scaledjobs.keda.sh", "get nodes",
		} {
			if may(t, "rights", account.Name, right) {
				t.Errorf("%s may %s", account.Name, right)
			}
		}
		if right := "create selfsubjectaccessreviews.authorization.k8s.io"; !may(t, "rights", account.Name, right) {
			t.Errorf("%s may not %s, which everyone may", account.Name, right)
		}
	}
}

// rules are what an account may do in its namespace, as it is told itself.
func rules(t *testing.T, namespace, account string) string {
	t.Helper()
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + account}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	got, err := kubernetes.NewForConfigOrDie(as).AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Status.Incomplete {
		t.Fatalf("rules of %s are incomplete: %s", account, got.Status.EvaluationError)
	}
	var lines []string // in any order
	for _, rule := range got.Status.ResourceRules {
		lines = append(lines, fmt.Sprint(rule))
	}
	for _, rule := range got.Status.NonResourceRules {
		lines = append(lines, fmt.Sprint(rule))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// may asks the server about one right of an account, as "patch pods/status" or "get jobs.batch".
func may(t *testing.T, namespace, account, right string) bool {
	t.Helper()
	verb, resource, _ := strings.Cut(right, " ")
	resource, subresource, _ := strings.Cut(resource, "/")
	resource, group, _ := strings.Cut(resource, ".")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource,
		},
	}}
	got, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Allowed
}

// The chart has no object beyond its namespace, and none that gives rights: an editor of the
// namespace installs it. Objects of KEDA and of the Prometheus operator need theirs.
func TestEditorInstalls(t *testing.T) {
	namespace(t, "editors")
	// What a controller adds up to the role edit.
	for _, role := range []string{"edit", "view"} {
		must(t, "kubectl", "--namespace", "editors", "create", "rolebinding", role, "--clusterrole=system:aggregate-to-"+role, "--user=editor")
	}
	if err := upgrade(t, "editors", "one-node.yaml", "--kube-as-user", "editor"); err != nil {
		t.Error(err)
	}
	err := upgrade(t, "editors", "cluster.yaml", "--kube-as-user", "editor")
	if err == nil || !strings.Contains(err.Error(), "cannot get resource") {
		t.Errorf("an editor without rights on the objects of KEDA: %v", err)
	}
	must(t, "kubectl", "--namespace", "editors", "create", "role", "scaling", "--verb=*", "--resource=scaledobjects.keda.sh,triggerauthentications.keda.sh,servicemonitors.monitoring.coreos.com,podmonitors.monitoring.coreos.com,prometheusrules.monitoring.coreos.com")
	must(t, "kubectl", "--namespace", "editors", "create", "rolebinding", "scaling", "--role=scaling", "--user=editor")
	if err := upgrade(t, "editors", "cluster.yaml", "--kube-as-user", "editor"); err != nil {
		t.Error(err)
	}
}
