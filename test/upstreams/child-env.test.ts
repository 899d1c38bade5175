import assert from 'node:assert/strict'
import { test } from 'node:test'
import { childEnv } from '../../src/upstreams/stdio/launch.ts'

test('a server inherits where and who it is, and nothing that may be a secret', () => {
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

test('what is configured comes on top', () => {
  assert.deepEqual(childEnv({ PATH: '/bin' }, { PATH: '/opt/bin', KEY: 'x' }), { PATH: '/opt/bin', KEY: 'x' })
})

test('exported shell functions stay here', () => {
  assert.deepEqual(childEnv({ SHELL: '() { echo; }' }, {}), {})
})
