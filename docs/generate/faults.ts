import { z } from 'zod'
import { eras, families, type Family, type FaultType, refusalOf, transports } from '../../src/chaos/fault.ts'
import type { FaultRegistry } from '../../src/chaos/faults/index.ts'
import { driftOperators, partialOperators } from '../../src/chaos/operators/index.ts'
import { isOfGateway } from '../../src/chaos/plan/checks.ts'
import { common } from '../../src/chaos/plan/common.ts'
import { policies } from '../../src/policies/index.ts'
import { blocks, code, fieldTable, list, type Pages, yaml } from './markdown.ts'
import { metricsOf, type Policies } from './policies.ts'

/** Returns `docs/faults.md` and the pages below it, from the descriptions of a registry's types. */
export function faultPages(registry: FaultRegistry): Pages {
  const chapters = (Object.keys(families) as Family[]).flatMap((family) => {
    const types = Object.entries(registry).filter(([, type]) => type.family === family)
    return types.length === 0 ? [] : [{ title: families[family], types }]
  })
  return {
    'faults.md': blocks(
      '# Faults',
      `All ${Object.keys(registry).length} types of fault for plans. \`npm run docs\` writes this page, and one for each type, from the code in \`src/chaos/faults\`.`,
      list([
        '[Fields of every fault](faults/common-fields.md): `rate`, `ttl`, `match`, `when` and the other common fields.',
        '[Operators](faults/operators.md): the changes `result.drift`, `result.split_brain` and `result.partial` can make to a result.',
        '[Effects of each fault](fault-cells.md): effects of each type on agents, and on servers of each transport and era, and why a type is not applicable somewhere. The gateway refuses a plan whose fault is not applicable to the server, and gives the reason listed there.',
        '[config/chaos.yaml](../config/chaos.yaml): a plan with an example of each type.',
      ]),
      ...chapters.flatMap(({ title, types }) => [
        `## ${title}`,
        list(types.map(([name, { about }]) => `[\`${name}\`](faults/${name}.md): ${about}`)),
      ]),
    ),
    'faults/common-fields.md': blocks(
      '# Fields of every fault',
      'An entry also has its `type`, the fields of that type, and its `side`: `upstream` (the default) is below all policies and tests the gateway, `client` is above them and tests the agent.',
      fieldTable(z.object({ ...common })),
      '[All types of faults](../faults.md)',
    ),
    'faults/operators.md': blocks(
      '# Operators',
      'The changes [`result.drift`](result.drift.md), [`result.split_brain`](result.split_brain.md) and [`result.partial`](result.partial.md) can make to a result. An operator is detectable if a schema of the result can reveal it.',
      ...Object.entries({ ...driftOperators, ...partialOperators }).map(([name, operator]) =>
        operatorSection(name, operator),
      ),
      '[All types of faults](../faults.md)',
    ),
    ...Object.fromEntries(
      Object.entries(registry).map(([name, type]) => [`faults/${name}.md`, typePage(name, type)]),
    ),
  }
}

/** Returns the page of one type. */
function typePage(name: string, type: FaultType<unknown>): string {
  const { about, use, seen, methods = ['tools/call'], sides, aliases = {}, schema } = type
  const { name: exampleName, ...example } = type.example
  const works = (transport: (typeof transports)[number], era: (typeof eras)[number]) =>
    refusalOf(type, { transport, era }) === undefined
  const refusals = transports.flatMap((transport) =>
    eras.flatMap((era) => refusalOf(type, { transport, era }) ?? []),
  )
  const foreign = Object.entries(aliases).map(([format, names]) => `${code(names)} (${format})`)
  return blocks(
    `# \`${name}\``,
    about,
    '## When to use it',
    use,
    '## The view of the agent',
    seen,
    '## Containment',
    containment(type),
    '## Where it works',
    list([
      `Methods: ${code(methods)}`,
      `Sides: ${code(sides)}`,
      `Transports: ${code(transports.filter((transport) => eras.some((era) => works(transport, era))))}`,
      `Eras: ${code(eras.filter((era) => transports.some((transport) => works(transport, era))))}`,
      ...[...new Set(refusals)].map((why) => `Refused elsewhere: ${why}`),
      ...(foreign.length === 0 ? [] : [`In other formats of plans: ${foreign.join(', ')}`]),
    ]),
    '## Fields',
    'In addition to [the fields of every fault](common-fields.md):',
    fieldTable(schema as z.ZodObject),
    yaml([{ name: exampleName, type: name, ...example }]),
    '## Metrics',
    `\`breakwater_faults_injected_total{type="${name}"}\` counts its injections. The next metrics have the fault's name as a label. \`breakwater_fault_outcomes_total\` counts the fates of injections, \`breakwater_fault_delay_seconds_total\` the time agents waited for good answers because of the fault. \`breakwater_fault_reactions_total\` counts the reactions of retries and breakers.`,
    ...(sides.includes('upstream') && methods.every(isOfGateway)
      ? [
          `Towards servers, the gateway itself sends these requests: there only \`breakwater_discovery_faults_injected_total{type="${name}"}\` counts the fault.`,
        ]
      : []),
    ...metricsOfContainment(type),
    '[All types of faults](../faults.md)',
  )
}

function containment({ containedBy: { policies: names, how } }: FaultType<unknown>): string {
  const links = names.map((policy) => `[\`${policy}\`](../policies/${policy}.md)`)
  return `${links.length === 0 ? 'No policy' : links.join(', ')}. ${how}`
}

/** Returns the metrics that move when the containing policies act. */
function metricsOfContainment({ containedBy }: FaultType<unknown>): readonly string[] {
  const items = containedBy.policies.flatMap((name) => {
    const policy = (policies as Policies)[name]
    const metrics = policy === undefined ? [] : metricsOf(policy)
    return metrics.length === 0 ? [] : [`\`${name}\`: ${code(metrics.map((metric) => metric.name))}`]
  })
  return items.length === 0 ? [] : ['The containing policies have their own metrics:', list(items)]
}

function operatorSection(
  name: string,
  { about, detectable, schema }: { about: string; detectable: string; schema: z.ZodObject },
): string {
  const isDetectable = detectable === 'schema_detectable'
  return blocks(
    `## \`${name}\``,
    `${about} ${isDetectable ? 'Detectable.' : 'Not detectable.'}`,
    fieldTable(schema),
  )
}
