import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mayBeForTests } from '../../../src/chaos/control/guard.ts'
import { fault, parsedFault, rig } from '../rig.ts'

const refused = (parts: Parameters<typeof rig>[0], more: object = {}) => {
  const { arm, controller } = rig(parts)
  const done = arm([fault('a', 'test.spoil')], more)
  assert.equal(controller.status().state, done.ok ? 'armed' : 'disarmed')
  assert.equal(controller.engine.live, done.ok)
  return done.ok ? undefined : done.why
}

const known = 'dev, development, test, staging, sandbox, qa, local'

test('an environment not known as a test environment refuses to arm, from any source', () => {
  assert.match(refused({ environment: undefined }) ?? '', /not set, which counts as production/)
  assert.match(refused({ environment: '' }) ?? '', /not set/)
  for (const environment of ['production', 'PROD', 'prd', 'Live', 'eu-prod', 'prod1', 'prod-eu'])
    assert.equal(
      refused({ environment }),
      `refused: gateway.environment is "${environment}", which counts as production`,
    )
  for (const environment of ['staging-eu', 'main', 'tests'])
    assert.equal(
      refused({ environment, chaosEnvironments: [] }),
      `refused: gateway.environment is "${environment}", which is none of ${known}; gateway.chaosEnvironments may name it`,
    )
  for (const name of ['NODE_ENV', 'ENVIRONMENT']) {
    assert.equal(
      refused({ variables: { [name]: 'production' } }),
      `refused: the environment variable ${name} is "production", which counts as production`,
    )
    assert.match(
      refused({ variables: { [name]: 'eu-stage' } }) ?? '',
      new RegExp(`^refused: the environment variable ${name} is "eu-stage", which is none of ${known}$`),
    )
  }
})

test('a test environment, or an environment named in the config, does not refuse to arm', () => {
  for (const environment of [...known.split(', '), 'Staging', 'QA'])
    assert.equal(refused({ environment }), undefined)
  const chaosEnvironments = ['staging-eu']
  assert.equal(refused({ environment: 'staging-eu', chaosEnvironments }), undefined)
  assert.equal(refused({ variables: { ENVIRONMENT: 'STAGING-EU' }, chaosEnvironments }), undefined)
  assert.equal(refused({ variables: { NODE_ENV: 'development', ENVIRONMENT: ' ' } }), undefined)
  assert.match(
    refused({ environment: 'staging-us', chaosEnvironments }) ?? '',
    /"staging-us", which is none of/,
  )
})

test('no config can name an environment of which a word is production', () => {
  for (const name of ['prod-eu', 'production-us', 'PROD1', 'productioneu', 'eu_prod', 'eu.live', 'prd'])
    assert.equal(mayBeForTests(name), false, name)
  for (const name of ['preprod', 'pre-prod', 'non_production', 'delivery', 'product', 'staging-eu'])
    assert.equal(mayBeForTests(name), true, name)
})

test('the lock keeps its state from boot', () => {
  const variables: Record<string, string> = { NODE_ENV: 'production' }
  const { arm, controller } = rig({ variables })
  delete variables.NODE_ENV
  assert.equal(arm([fault('a', 'test.spoil')]).ok, false)
  assert.match(controller.status().refusal ?? '', /NODE_ENV/)
})

test('no reload opens the lock, and each attempt is logged', () => {
  const { apply, controller, typesOf } = rig({ environment: 'production' })
  apply({ faults: [fault('a', 'test.spoil')] })
  apply({ enabled: true, faults: [fault('a', 'test.spoil')] })
  assert.equal(controller.status().state, 'disarmed')
  assert.deepEqual(typesOf(), ['plan', 'refused'])
})

test('arming needs both the flag and a plan with faults', () => {
  assert.equal(refused({}, { enabled: false }), 'refused: chaos.enabled is false')
  assert.equal(refused({}, { faults: [] }), 'refused: the plan has no faults')
})

test('the runtime API cannot open the lock either', () => {
  const { apply, controller } = rig({ environment: 'production' })
  apply({ enabled: true })
  assert.deepEqual(controller.runtime.inject(parsedFault(fault('a', 'test.spoil')), 'api'), {
    ok: false,
    why: 'refused: gateway.environment is "production", which counts as production',
  })
})
