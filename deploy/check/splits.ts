import { parser } from '@prometheus-io/lezer-promql'

/**
 * Returns metrics of a PromQL expression whose series keep a label up to the result: no surrounding aggregation drops
 * the label, and no matcher selects one value.
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
