"""Metrics of members, read from their pages: role, term and how far followers are."""

from tests.kit import virtual
from tests.unit.broker_group.figures_kit import PAGE, figures
from tests.unit.broker_group.kit import group, member_of


@virtual
async def test_the_pages_of_a_group_show_who_leads_and_who_is_behind() -> None:
    async with group(PAGE) as world:
        leader = await world.leader()
        await world.equal()
        behind, other = world.followers()
        for node in world.running:
            if node is not behind:
                world.network.cut(node.ip, behind.ip)
        for number in range(5):
            assert (await world.send(leader, b"%d" % number)).code == 0
        shown, follower = await figures(world, leader), await figures(world, other)
        assert (shown['rolerole="leader"'], follower['rolerole="follower"']) == (1, 1)
        assert shown["term"] == follower["term"] == member_of(leader).term
        name_of = member_of(behind).group.own_id
        assert shown[f'follower_distance_entriesmember="{name_of}"'] >= 5
        assert shown[f'follower_distance_entriesmember="{member_of(other).group.own_id}"'] == 0
        assert not any(name.startswith("follower_distance") for name in follower)
        assert shown["pending_appends"] == shown["commit_distance_entries"] == 0
        assert shown["elections_total"] >= 1
