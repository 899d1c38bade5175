import { parser } from '@prometheus-io/lezer-promql'

/** A metric that an expression reads, and the labels that it asks for. */
export interface Selector {
  readonly metric: string
  readonly labels: readonly string[]
  /** As it stands in the expression, without its window. */
  readonly text: string
}

/** What an expression consists of. */
export interface Parsed {
  /** Where it is no PromQL, as text; empty when all of it is. */
  readonly errors: readonly string[]
  readonly selectors: readonly Selector[]
  /** Labels of `by`, `on` and the like. */
  readonly grouping: readonly string[]
}

/** Takes a PromQL expression apart, as the editor of Prometheus does. */
export function parse(expr: string): Parsed {
  const errors: string[] = []
  const selectors: { metric: string; labels: string[]; text: string }[] = []
  const grouping: string[] = []
  const text = ({ from, to }: { from: number; to: number }) => expr.slice(from, to)
  parser.parse(expr).iterate({
    enter(node) {
      const parent = node.node.parent?.name
      if (node.type.isError) errors.push(`"${expr.slice(Math.max(0, node.from - 20), node.from + 20)}"`)
      if (node.name === 'VectorSelector') selectors.push({ metric: '', labels: [], text: text(node) })
      if (node.name === 'Identifier' && parent === 'VectorSelector') selectors.at(-1)!.metric = text(node)
      if (node.name !== 'LabelName') return
      if (parent === 'GroupingLabels') grouping.push(text(node))
      else selectors.at(-1)?.labels.push(text(node))
    },
  })
  return { errors, selectors, grouping }
}
