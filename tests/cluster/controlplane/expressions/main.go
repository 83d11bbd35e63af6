// Evaluates match conditions and admission policies on pods as kube-apiserver does, by its own code, without one.
//
// It reads JSON, a value a line: first an object of name to Matcher, then Requests. To each request it writes an object
// of name to Outcome.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Named is an expression with its name.
type Named struct{ Name, Expression string }

// Matcher is what a webhook, or a policy, has of CEL.
type Matcher struct {
	Conditions  []Named
	Variables   []Named
	Validations []struct{ Expression, MessageExpression string }
}

// Request is one that an API server would ask about; Old is there in updates, and alone in deletions. Its user may do
// nothing.
type Request struct {
	Pod, Old                         *corev1.Pod
	Operation, Subresource, Username string
	GracePeriodSeconds               *int64
	Namespace                        *corev1.Namespace
}

// Outcome of a matcher: whether its conditions hold, what it refuses, what went wrong, and what both parts cost.
type Outcome struct {
	Matches          bool
	Refused          []string
	Errors           []string
	Cost, PolicyCost int64
}

type compiled struct {
	conditions, validations, messages cel.ConditionEvaluator
}

func compile(m Matcher) (made compiled) {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	composed, err := cel.NewCompositedCompiler(env)
	check(err)
	var conditions, validations, messages []cel.ExpressionAccessor
	for _, condition := range m.Conditions {
		conditions = append(conditions, &matchconditions.MatchCondition{Name: condition.Name, Expression: condition.Expression})
	}
	for _, variable := range m.Variables {
		named := &validating.Variable{Name: variable.Name, Expression: variable.Expression}
		if result := composed.CompileAndStoreVariable(named, declared, environment.StoredExpressions); result.Error != nil {
			check(fmt.Errorf("%s: %w", variable.Name, result.Error))
		}
	}
	for _, validation := range m.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: validation.Expression})
		var message cel.ExpressionAccessor
		if validation.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: validation.MessageExpression}
		}
		messages = append(messages, message)
	}
	made.conditions = cel.NewConditionCompiler(env).CompileCondition(conditions, declared, environment.StoredExpressions)
	made.validations = composed.CompileCondition(validations, declared, environment.StoredExpressions)
	made.messages = composed.CompileCondition(messages, cel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	for _, evaluator := range []cel.ConditionEvaluator{made.conditions, made.validations, made.messages} {
		for _, err := range evaluator.CompilationErrors() {
			check(err)
		}
	}
	return made
}

func (m compiled) judge(r Request) (out Outcome) {
	var object, old, options runtime.Object
	named := r.Pod
	if r.Pod != nil {
		object, options = r.Pod, &metav1.CreateOptions{}
	}
	if r.Old != nil {
		old, named = r.Old, r.Old
	}
	if r.Operation == string(admission.Delete) {
		options = &metav1.DeleteOptions{GracePeriodSeconds: r.GracePeriodSeconds}
	}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	attributes := admission.NewAttributesRecord(object, old, kind, named.Namespace, named.Name, resource, r.Subresource,
		admission.Operation(r.Operation), options, false, &user.DefaultInfo{Name: r.Username})
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: object, VersionedOldObject: old}
	request := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
	evaluate := func(evaluator cel.ConditionEvaluator, namespace *corev1.Namespace, budget int64) ([]cel.EvaluationResult, int64) {
		bindings := cel.OptionalVariableBindings{Authorizer: authorizerfactory.NewAlwaysDenyAuthorizer()}
		results, left, err := evaluator.ForInput(context.Background(), versioned, request, bindings, namespace, budget)
		if err != nil {
			out.Errors = append(out.Errors, err.Error())
			return nil, budget
		}
		for _, result := range results {
			if result.Error != nil {
				out.Errors = append(out.Errors, result.Error.Error()[max(0, len(result.Error.Error())-200):])
			}
		}
		return results, budget - left
	}
	results, cost := evaluate(m.conditions, nil, celconfig.RuntimeCELCostBudgetMatchConditions)
	out.Cost, out.Matches = cost, len(out.Errors) == 0
	for _, result := range results {
		out.Matches = out.Matches && result.EvalResult != nil && result.EvalResult.Value() == true
	}
	if !out.Matches {
		return out
	}
	verdicts, cost := evaluate(m.validations, r.Namespace, celconfig.RuntimeCELCostBudget)
	messages, more := evaluate(m.messages, r.Namespace, celconfig.RuntimeCELCostBudget-cost)
	out.PolicyCost = cost + more
	for index, verdict := range verdicts {
		if verdict.EvalResult != nil && verdict.EvalResult.Value() == false {
			said := "refused"
			if messages[index].EvalResult != nil {
				said = fmt.Sprint(messages[index].EvalResult.Value())
			}
			out.Refused = append(out.Refused, said)
		}
	}
	return out
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	lines, answers := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20)), json.NewEncoder(os.Stdout)
	var matchers map[string]Matcher
	check(lines.Decode(&matchers))
	evaluators := map[string]compiled{}
	for name, matcher := range matchers {
		evaluators[name] = compile(matcher)
	}
	for lines.More() {
		var request Request
		check(lines.Decode(&request))
		outcomes := map[string]Outcome{}
		for name, evaluator := range evaluators {
			outcomes[name] = evaluator.judge(request)
		}
		check(answers.Encode(outcomes))
	}
}
