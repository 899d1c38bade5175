import { parser } from '@prometheus-io/lezer-promql'

/**
 * Metrics of a PromQL expression whose series keep a label on their way into its result: no aggregation around them
 * drops it, and no matcher asks for one value of it.
 */
export function splitBy(label: string, expr: string): string[] {
  const found: string[] = []
  const text = ({ from, to }: { from: number; to: number }) => expr.slice(from, to)
  const isPinned = new RegExp(`[{,]\\s*${label}\\s*=\\s*"`)
  parser.parse(expr).iterate({
    enter({ name, node }) {
      if (name !== 'VectorSelector' || isPinned.test(text(node))) return
      for (let around = node.parent; around !== null; around = around.parent) {
        if (around.name !== 'AggregateExpr') continue
        const modifier = around.getChild('AggregateModifier')
        const labels = modifier?.getChild('GroupingLabels')?.getChildren('LabelName').map(text) ?? []
        const isWithout = (modifier?.getChild('Without') ?? null) !== null
        if (labels.includes(label) === isWithout) return
      }
      const identifier = node.getChild('Identifier')
      if (identifier !== null) found.push(text(identifier))
    },
  })
  return found
}
