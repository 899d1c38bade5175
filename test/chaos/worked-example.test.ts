import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parse } from 'yaml'
import { z } from 'zod'
import { faultPages } from '../../docs/generate/faults.ts'
import { faults, type FaultRegistry } from '../../src/chaos/faults/index.ts'
import { targetFindings } from '../../src/chaos/plan/checks.ts'
import { chaosSchema, faultSchema } from '../../src/chaos/plan/schema.ts'
import { upperCase } from '../fixtures/examples/upper-case-fault.ts'
import { toolCall } from '../support/caller.ts'
import { observed } from '../telemetry/observed.ts'
import { answer, rig } from './rig.ts'

const registry: FaultRegistry = {
  ...faults,
  'result.upper_case': upperCase,
}

const type = 'result.upper_case'
const planned = chaosSchema(registry).parse({ enabled: true, faults: [{ type, ...upperCase.example }] })

test('the schema for editors has the new type, its fields and their descriptions', () => {
  const { oneOf = [] } = z.toJSONSchema(faultSchema(registry), { io: 'input' })
  const option = oneOf.find(({ title }) => title === type)
  assert.equal(option?.description, upperCase.about)
  const { letters, side } = option?.properties as Record<string, z.core.JSONSchema.BaseSchema>
  assert.match(letters?.description ?? '', /How many letters/)
  assert.deepEqual([letters?.default, letters?.maximum, side?.enum], [10, 1_000, ['upstream', 'client']])
})

test('plans may name the new type, and get findings about its fields', () => {
  const [fault] = planned.faults
  assert.deepEqual([fault?.type, fault?.letters, fault?.side, fault?.sticky], [type, 5, 'upstream', false])
  const wrong = chaosSchema(registry).safeParse({ faults: [{ type, ...upperCase.example, letters: 0 }] })
  assert.deepEqual(wrong.error?.issues[0]?.path, ['faults', 0, 'letters'])
  const unknown = chaosSchema(registry).safeParse({ faults: [{ type: 'result.upper_csae', name: 'a' }] })
  assert.match(unknown.error?.message ?? '', /did you mean result\.upper_case\?/)
})

test('a plan gets a finding when the new type cannot work with a server', () => {
  const servers = [{ name: 'search', kind: { transport: 'stdio', era: undefined } }] as const
  assert.deepEqual(
    targetFindings(planned.faults, { servers, arms: [] }, registry).map(({ severity, message }) => ({
      severity,
      message,
    })),
    [
      {
        severity: 'error',
        message: `${type} cannot work with search: stdio is used by programs that know no capitals`,
      },
    ],
  )
})

test('the catalogue has a page on the new type, with an example that can be copied', () => {
  const pages = faultPages(registry)
  assert.match(pages['faults.md'] ?? '', /\[`result\.upper_case`\]\(faults\/result\.upper_case\.md\)/)
  const page = pages[`faults/${type}.md`] ?? ''
  for (const words of [upperCase.about, upperCase.use, upperCase.seen, upperCase.containedBy.how])
    assert.ok(page.includes(words), words)
  assert.match(page, /^- Transports: `http`, `sse`$/m)
  assert.match(page, /^\| `letters` \| integer from 1 to 1000 \| `10`/m)
  const example = /```yaml\n([^`]*)```/.exec(page)?.[1] ?? ''
  assert.deepEqual(chaosSchema(registry).parse({ faults: parse(example) }).faults, planned.faults)
})

test('the new type hits a call, the journal says so, and the metrics count it', async () => {
  const content = [{ type: 'text', text: 'tomorrow: rain' }]
  const set = rig({ registry, server: () => Promise.resolve(answer({ content })) })
  set.controller.apply(planned)
  assert.deepEqual(set.controller.arm('me', 'a test'), { ok: true })
  const { service, exposed } = observed(set.send, undefined, {}, set.account)
  const outcome = await service(toolCall('weather', {}, { server: 'search' }))
  assert.ok(outcome.kind === 'answered')
  assert.deepEqual(outcome.result.value.result, { content: [{ type: 'text', text: 'TOMORrow: rain' }] })
  const [entry] = set.controller.journal.decisions()
  assert.deepEqual(
    [entry?.fault, entry?.type, entry?.decision, entry?.status],
    ['upper-case', type, 'injected', 'applied'],
  )
  assert.deepEqual(entry?.note, { letters: 5 })
  assert.equal(set.tally('upper-case').hits, 1)
  assert.deepEqual(await exposed('breakwater_faults_injected_total'), [
    `breakwater_faults_injected_total{fault="upper-case",type="${type}"} 1`,
  ])
})
