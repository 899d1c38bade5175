import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fault, rig } from '../rig.ts'

const refused = (parts: Parameters<typeof rig>[0], more: object = {}) => {
  const { arm, controller } = rig(parts)
  const done = arm([fault('a', 'test.spoil')], more)
  assert.equal(controller.status().state, 'disarmed')
  assert.equal(controller.engine.live, false)
  return done.ok ? undefined : done.why
}

test('production refuses, whatever it is called and wherever it is said', () => {
  assert.match(refused({ environment: undefined }) ?? '', /not set, which counts as production/)
  assert.match(refused({ environment: '' }) ?? '', /not set/)
  for (const environment of ['production', 'PROD', 'prod-eu', 'Production']) {
    assert.equal(refused({ environment }), `refused: gateway.environment is "${environment}"`)
  }
  for (const name of ['NODE_ENV', 'ENVIRONMENT']) {
    const why = refused({ variables: { [name]: 'production' } })
    assert.equal(why, `refused: the environment variable ${name} is "production"`)
  }
})

test('the lock is what it was at boot', () => {
  const variables: Record<string, string> = { NODE_ENV: 'production' }
  const { arm, controller } = rig({ variables })
  delete variables.NODE_ENV
  assert.equal(arm([fault('a', 'test.spoil')]).ok, false)
  assert.match(controller.status().refusal ?? '', /NODE_ENV/)
})

test('no reload opens the lock, and none of it is silent', () => {
  const { apply, controller, typesOf } = rig({ environment: 'production' })
  apply({ faults: [fault('a', 'test.spoil')] })
  apply({ enabled: true, faults: [fault('a', 'test.spoil')] })
  assert.equal(controller.status().state, 'disarmed')
  assert.deepEqual(typesOf(), ['plan', 'refused'])
})

test('the flag and a plan are keys of their own', () => {
  assert.equal(refused({}, { enabled: false }), 'refused: chaos.enabled is false')
  assert.equal(refused({}, { faults: [] }), 'refused: the plan has no faults')
})

test('the runtime API has no key to the lock either', () => {
  const { apply, controller } = rig({ environment: 'production' })
  apply({ enabled: true })
  const one = { ...fault('a', 'test.spoil'), side: 'upstream', ttl: 1_000 } as never
  assert.deepEqual(controller.runtime.inject(one, 'api'), {
    ok: false,
    why: 'refused: gateway.environment is "production"',
  })
})
