import { parser } from '@prometheus-io/lezer-promql'

export interface Selector {
  readonly metric: string
  readonly labels: readonly string[]
  /** Text of the selector in the expression, without the window. */
  readonly text: string
}

export interface Parsed {
  /** Syntax errors as text; empty if none. */
  readonly errors: readonly string[]
  readonly selectors: readonly Selector[]
  /** Labels of `by`, `on` and the like. */
  readonly grouping: readonly string[]
}

/** Parses a PromQL expression with the grammar of Prometheus's editor. */
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
