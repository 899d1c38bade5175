import { httpServer } from '../../src/config/schema/server-schema.ts'
import { systemClock } from '../../src/mesh/clock.ts'
import { SseUpstream } from '../../src/upstreams/sse/sse.ts'
import { startFixture } from '../support/fixture.ts'
import { silent } from '../support/log.ts'
import { contract } from './contract.ts'
import { MAX_REPLY } from './subject.ts'

contract('sse', async (fixture) => {
  const { url, stop } = await startFixture(fixture, 'sse')
  const config = httpServer.parse({ type: 'sse', urls: [url], maxReply: MAX_REPLY })
  const upstream = new SseUpstream({ server: 'test', config, url, clock: systemClock, log: silent })
  return { upstream, stop }
})
