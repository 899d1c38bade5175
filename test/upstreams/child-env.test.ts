import assert from 'node:assert/strict'
import { test } from 'node:test'
import { childEnv } from '../../src/upstreams/stdio/launch.ts'

test('a server inherits harmless variables such as paths and user, and no possible secret', () => {
  const own = {
    PATH: '/bin',
    HOME: '/home/me',
    TZ: 'UTC',
    API_KEY: 'secret',
    HTTPS_PROXY: 'http://me:secret@proxy',
    npm_config_registry: 'https://registry',
    LANG: undefined,
  }
  assert.deepEqual(childEnv(own, {}), { PATH: '/bin', HOME: '/home/me', TZ: 'UTC' })
})

test('configured variables override inherited ones', () => {
  assert.deepEqual(childEnv({ PATH: '/bin' }, { PATH: '/opt/bin', KEY: 'x' }), { PATH: '/opt/bin', KEY: 'x' })
})

test('a server does not inherit exported shell functions', () => {
  assert.deepEqual(childEnv({ SHELL: '() { echo; }' }, {}), {})
})
